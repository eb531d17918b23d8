// Gradients of the steps of a state space model's scan: of the states that chunks leave, and of the results
// from the states before them. A chunk has them for itself, its heads of a group one after another, so that
// the gradients of their B and C are sums in a fixed order.
#include "ops/linear/scan_pieces.hpp"
#include "ops/state_space/chunks.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

struct Chunk {
  Expr n, h, chunk, row, last;
};

// What both have: a block for chunk, group of heads and sequence.
template <class F>
void each_group(const ScanInputs& in, const F& body) {
  grid(in.s.chunks(in.c.rows()), in.key_heads, in.s.parts(), [&](Index x, Index key_head, Index y) {
    const auto [n, chunk] = in.s.place(x, y);
    body(n, key_head, chunk);
  });
}
template <class F>
void each_head(const ScanInputs& in, const Expr& n, const Expr& key_head, const Expr& chunk, const F& body) {
  Expr row = chunk * in.c.rows(), group = Expr(in.heads) / in.key_heads;
  serial(group, [&](Index member) {
    body(Chunk{n, key_head * group + member, chunk, row, in.last_row(n, row)});
  });
}

class StateGradientsOfChunks {
 public:
  explicit StateGradientsOfChunks(const ScanKernel& kernel) : c(kernel) { in.s.declare_chunks(); }

  void run() const {
    const Sequences& s = in.s;
    each_group(in, [&](const Expr& n, const Expr& key_head, const Expr& chunk) {
      Expr row = chunk * c.rows();
      s.leave_unless(n, row);
      Shared ks({c.rows(), c.features()}, c.type);
      copy(s.head(k, n, key_head).at(row), ks);
      Fragment own_dk({c.rows(), c.features()}, f32, 0);
      each_head(in, n, key_head, chunk, [&](const Chunk& own) { add_head(own, ks, own_dk); });
      copy(own_dk, s.head(dk, n, key_head).at(row));
    });
  }

 private:
  void add_head(const Chunk& own, const Shared& ks, Fragment& own_dk) const {
    const Sequences& s = in.s;
    GateTile gates(c);
    gates.load(in.vector(sums, own.n, own.chunk, own.h));
    Fragment lost({c.rows()}, f32, 0);
    pipelined(in.blocks(), {.stages = 2}, [&](Index x) {
      Expr column = x * c.block;
      Shared vs({c.rows(), c.block}, c.type), dstate({c.block, c.features()}, c.type);
      copy(s.head(v, own.n, own.h).at(own.row, column), vs);
      copy(s.chunk(dstates, own.n, own.chunk, own.h).at(column), dstate);
      Fragment dvs({c.rows(), c.block}, f32, 0);
      gemm(ks, dstate.T(), dvs);
      gates.fade(dvs, own.last);
      reduce_sum(map(dvs, [&](Index i, Index j) { return dvs(i, j) * f32(vs(i, j)); }), lost);
      std::optional<Shared> room;
      gemm(gates.faded(vs, own.last, room), dstate, own_dk);
      copy(dvs, s.head(dv, own.n, own.h).at(own.row, column));
    });
    Expr decay = ddecays(c.packed ? Expr(0) : own.n, s.chunk_number(own.n, own.chunk), own.h);
    Expr at_last = reduce_sum(lost).scalar() + decay * exp2(gates.at(own.last));
    parallel(lost, [&](Index i) { lost(i) = select(i == own.last, at_last, 0) - lost(i); });
    copy(lost, s.head(dsums, own.n, own.h).at(own.row));
  }

  const ScanKernel& c;
  ScanInputs in{c};
  Tensor k = in.keys("k"), v = in.values("v"), sums = in.vectors("sums");
  Tensor dstates = input("dstates", {in.s.batch, in.chunks, in.heads, c.d_v, c.d}, f32);
  Tensor ddecays = input("ddecays", {in.s.batch, in.chunks, in.heads}, f32);
  Tensor dk = output("dk", in.s.shape({in.key_heads, c.d}), c.result);
  Tensor dv = output("dv", in.columns(), c.type), dsums = output("dsums", in.of_heads(), f32);
};

class ScanGradientsOfChunks {
 public:
  explicit ScanGradientsOfChunks(const ScanKernel& kernel) : c(kernel) { in.s.declare_chunks(); }

  // A chunk without tokens has a state before it, whose gradient is zero.
  void run() const {
    const Sequences& s = in.s;
    each_group(in, [&](const Expr& n, const Expr& key_head, const Expr& chunk) {
      Expr row = chunk * c.rows();
      s.hold_promise(n);
      Shared qs({c.rows(), c.features()}, c.type), ks({c.rows(), c.features()}, c.type);
      copy(s.head(q, n, key_head).at(row), qs);
      copy(s.head(k, n, key_head).at(row), ks);
      Fragment all_dq({c.rows(), c.features()}, f32, 0), own_dk({c.rows(), c.features()}, f32, 0);
      each_head(in, n, key_head, chunk, [&](const Chunk& own) {
        Fragment own_dq({c.rows(), c.features()}, f32, 0);
        add_head(own, qs, ks, own_dq, own_dk);
        parallel(all_dq, [&](Index i, Index j) { all_dq(i, j) += own_dq(i, j); });
      });
      copy(all_dq, s.head(dq, n, key_head).at(row));
      copy(own_dk, s.head(dk, n, key_head).at(row));
    });
  }

 private:
  void add_head(const Chunk& own, const Shared& qs, const Shared& ks, Fragment& own_dq,
                Fragment& own_dk) const {
    GateTile gates(c);
    gates.load(in.vector(sums, own.n, own.chunk, own.h));
    Fragment scores({c.rows(), c.rows()}, f32, 0), ds({c.rows(), c.rows()}, f32, 0);
    Shared weights({c.rows(), c.rows()}, c.type), rounded({c.rows(), c.rows()}, c.type);
    gemm(qs, ks.T(), scores);
    gates.mask(scores, 1);
    copy(scores, weights);
    add_columns(own, gates, weights, qs, ds, own_dq);
    Fragment dg = reduce_sum(map(own_dq, [&](Index i, Index j) { return own_dq(i, j) * f32(qs(i, j)); }));
    parallel(scores, [&](Index i, Index j) { scores(i, j) *= ds(i, j); });
    reduce_sum(scores, dg);
    Fragment columns = reduce_sum(scores, 0);
    parallel(dg, [&](Index i) { dg(i) -= columns(i); });
    copy(dg, in.s.head(dsums, own.n, own.h).at(own.row));
    gates.mask(ds, 1);
    copy(ds, rounded);
    gemm(rounded, ks, own_dq);
    gemm(rounded.T(), qs, own_dk);
  }

  // Some columns of values at a time: products of the results' gradients with values, weights and states.
  void add_columns(const Chunk& own, const GateTile& gates, const Shared& weights, const Shared& qs,
                   Fragment& ds, Fragment& own_dq) const {
    const Sequences& s = in.s;
    pipelined(in.blocks(), {.stages = 2}, [&](Index x) {
      Expr column = x * c.block;
      Shared vs({c.rows(), c.block}, c.type), dys({c.rows(), c.block}, c.type);
      Shared start({c.block, c.features()}, c.type), grown({c.rows(), c.block}, c.type);
      copy(s.head(v, own.n, own.h).at(own.row, column), vs);
      copy(s.head(dy, own.n, own.h).at(own.row, column), dys);
      copy(s.chunk(starts, own.n, own.chunk, own.h).at(column), start);
      parallel(grown, [&](Index i, Index j) { grown(i, j) = f32(dys(i, j)) * exp2(gates.at(i)); });
      Fragment dvs({c.rows(), c.block}, f32, 0), dstart({c.block, c.features()}, f32, 0);
      gemm(dys, vs.T(), ds);
      gemm(weights.T(), dys, dvs);
      gemm(grown, start, own_dq);
      gemm(grown.T(), qs, dstart);
      copy(dvs, s.head(dv, own.n, own.h).at(own.row, column));
      copy(dstart, s.chunk(dstarts, own.n, own.chunk, own.h).at(column));
    });
  }

  Extents states() const { return {in.s.batch, in.chunks, in.heads, c.d_v, c.d}; }

  const ScanKernel& c;
  ScanInputs in{c};
  Tensor q = in.keys("q"), k = in.keys("k"), v = in.values("v"), dy = in.values("dy");
  Tensor sums = in.vectors("sums"), starts = input("starts", states(), f32);
  Tensor dq = output("dq", in.s.shape({in.key_heads, c.d}), c.result);
  Tensor dk = output("dk", in.s.shape({in.key_heads, c.d}), c.result);
  Tensor dv = output("dv", in.columns(), c.type), dsums = output("dsums", in.of_heads(), f32);
  Tensor dstarts = output("dstarts", states(), f32);
};

}  // namespace

Kernel chunk_state_gradients_kernel(const ScanKernel& c) {
  return kernel(instance_name("ssd_chunk_state_gradients", c), [&] { StateGradientsOfChunks(c).run(); });
}

Kernel chunk_scan_gradients_kernel(const ScanKernel& c) {
  return kernel(instance_name("ssd_chunk_scan_gradients", c), [&] { ScanGradientsOfChunks(c).run(); });
}

}  // namespace tegula::ops

// Gradients of scans: of the states, from the last chunk to the first, and of what each chunk has alone.
#include "ops/linear/scan_pieces.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// dv = scale · (decayed q kᵀ)ᵀ dout + e^(g_last − g) k dstate; dstate ← e^g_last dstate + scale · (e^g q)ᵀ
// dout, and less wᵀ dv with the delta rule.
class StateGradients {
 public:
  explicit StateGradients(const ScanKernel& kernel) : c(kernel) { in.s.declare(); }

  void run() {
    grid(in.blocks(), in.heads, in.parts(), {.threads = c.by_feature ? 0 : c.threads()},
         [&](Index x, Index h, Index z) {
           const auto part = in.part(z);
           Expr column = x * c.block, key_head = in.key_head(h);
           Fragment dstate({c.features(), c.block}, f32, 0);
           if (c.last) copy(in.state(dend, part, h).at(0, column), dstate);
           const int elements = c.rows() * (c.features() * (c.by_feature ? 3 : 2) + c.block);
           pipelined(part.chunks, {.stages = c.stages(elements)}, [&](Index step) {
             Expr chunk = part.first + part.chunks - 1 - step, row = chunk * c.rows();
             const Place at{part.n, h, key_head, chunk, row, column, in.last_row(part.n, row)};
             c.alone && !c.by_feature ? add_alone(at, dstate) : pass(at, dstate);
           });
           if (c.first) copy(dstate, in.state(dstart, part, h).at(0, column));
         });
  }

 private:
  struct Place {
    Expr n, h, key_head, chunk, row, column, last;
  };
  // The tiles of a chunk.
  struct Tiles {
    Shared qs, ks, douts, rounded;
    std::optional<Shared> weights;
  };

  // From the gradient of the state after a chunk to that of the one before it.
  void pass(const Place& at, Fragment& dstate) {
    const Sequences& s = in.s;
    Tiles t{Shared({c.rows(), c.features()}, c.type), Shared({c.rows(), c.features()}, c.type),
            Shared({c.rows(), c.block}, c.type), Shared({c.features(), c.block}, c.type), std::nullopt};
    if (c.by_feature) t.weights.emplace(std::initializer_list<int>{c.rows(), c.rows()}, c.type);
    GateTile gates(c);
    copy(s.head(q, at.n, at.key_head).at(at.row), t.qs);
    copy(s.head(k, at.n, at.key_head).at(at.row), t.ks);
    copy(s.head(dout, at.n, at.h).at(at.row, at.column), t.douts);
    if (c.gated) gates.load(in.vector(sums, at.n, at.chunk, at.h));
    copy(dstate, t.rounded);
    Fragment dvs({c.rows(), c.block}, f32, 0);
    if (c.by_feature)
      fade_by_features(at, t, dvs, dstate);
    else
      fade_by_gates(at, t, gates, dvs, dstate);
    if (!c.alone) copy(dvs, s.head(dv, at.n, at.h).at(at.row, at.column));
  }

  // What a chunk adds to the gradient of the state before it.
  void add_alone(const Place& at, Fragment& dstate) {
    Shared qs({c.rows(), c.features()}, c.type), douts({c.rows(), c.block}, c.type),
        scaled({c.rows(), c.block}, c.type);
    GateTile gates(c);
    copy(in.s.head(q, at.n, at.key_head).at(at.row), qs);
    copy(in.s.head(dout, at.n, at.h).at(at.row, at.column), douts);
    if (c.gated) gates.load(in.vector(sums, at.n, at.chunk, at.h));
    scale_results(douts, gates, scaled);
    gates.age(dstate, at.last);
    gemm(qs.T(), scaled, dstate);
  }
  void scale_results(const Shared& douts, const GateTile& gates, Shared& scaled) const {
    Fragment gained({c.rows(), c.block}, f32);
    parallel(gained, [&](Index i, Index j) {
      Expr factor = c.gated ? *scale * exp2(gates.at(i)) : Expr(*scale);
      gained(i, j) = f32(douts(i, j)) * factor;
    });
    copy(gained, scaled);
  }

  // What no product reads follows one, so that it runs beside it.
  void keep(const Place& at, const Tiles& t) {
    copy(t.rounded, in.s.chunk(dstates, at.n, at.chunk, at.h).at(0, at.column));
  }

  void fade_by_features(const Place& at, Tiles& t, Fragment& dvs, Fragment& dstate) {
    Shared own_decays({c.features()}, f32);
    copy(in.s.head(given, at.n, at.h).at(at.row), *t.weights);
    copy(in.s.chunk(decays, at.n, at.chunk, at.h).at(0), own_decays);
    gemm(t.ks, t.rounded, dvs);
    gemm(t.weights->T(), t.douts, dvs);
    if (!c.alone) keep(at, t);
    fade_features(dstate, own_decays);
    gemm(t.qs.T(), t.douts, dstate);
    Shared ws({c.rows(), c.features()}, c.type), minus({c.rows(), c.block}, c.type);
    copy(in.s.head(w, at.n, at.h).at(at.row), ws);
    parallel(minus, [&](Index i, Index j) { minus(i, j) = -dvs(i, j); });
    gemm(ws.T(), minus, dstate);
  }

  // Scores have keys as rows, so that they are the left operand of the product with results' gradients, which
  // have a tile of their own where they are scaled: the copy engine brings only what nothing else writes.
  void fade_by_gates(const Place& at, Tiles& t, GateTile& gates, Fragment& dvs, Fragment& dstate) {
    Fragment scores({c.rows(), c.rows()}, f32, 0);
    Shared scaled({c.rows(), c.block}, c.type);
    gemm(t.ks, t.qs.T(), scores);
    gemm(t.ks, t.rounded, dvs);
    keep(at, t);
    scale_results(t.douts, gates, scaled);
    gates.age(dstate, at.last);
    gates.mask_of_keys(scores, *scale);
    gates.fade(dvs, at.last);
    gemm(scores.to(c.type), t.douts, dvs);
    gemm(t.qs.T(), scaled, dstate);
  }

  const ScanKernel& c;
  ScanInputs in{c};
  Tensor q = in.keys("q"), k = c.alone && !c.by_feature ? q : in.keys("k"),
         dout = input("dout", in.columns(), c.type);
  Tensor given = c.by_feature ? input("scores", in.s.shape({in.heads, c.rows()}), c.type) : q;
  Tensor decays = c.by_feature ? in.decays() : q;
  Tensor w = c.by_feature ? input("w", in.s.shape({in.heads, c.d}), c.type) : k;
  Tensor sums = c.gated ? in.vectors("sums") : q;
  Tensor dend = c.last ? input("dfinal_state", in.ends(), f32) : q;
  std::optional<Expr> scale = c.by_feature ? std::nullopt : std::optional<Expr>(scalar("scale", f32));
  Tensor dstates = c.alone ? q : output("dstates", in.states(), c.type);
  Tensor dv = c.alone ? q : output("dv", in.s.shape({in.heads, c.d_v - (c.ones ? 1 : 0)}), c.type);
  Tensor dstart = c.first ? output("dinitial_state", in.ends(), f32) : dstates;
};

}  // namespace

Kernel scan_state_gradients_kernel(const ScanKernel& c) {
  return kernel(instance_name("scan_state_gradients", c), [&] { StateGradients(c).run(); });
}

namespace {

// The gradients of a chunk, for one head or summed over those that share q and k.
class ChunkGradients {
 public:
  explicit ChunkGradients(const ScanKernel& kernel)
      : c(kernel),
        in(c),
        q(in.keys("q")),
        k(in.keys("k")),
        v(in.values("v")),
        dout(input("dout", in.columns(), c.type)),
        states(input("states", in.states(), c.type)),
        dstates(input("dstates", in.states(), c.type)),
        sums(c.gated ? in.vectors("sums") : q),
        scale(scalar("scale", f32)),
        dq(output("dq", in.s.shape({in.key_heads, c.d}), c.result)),
        dk(output("dk", in.s.shape({in.key_heads, c.d}), c.result)),
        dsums(c.gated ? output("dsums", in.of_heads(), f32) : dq) {
    in.s.declare_chunks();
  }

  void run() const {
    const Sequences& s = in.s;
    grid(in.key_heads, s.chunks(), s.parts(), [&](Index key_head, Index x, Index y) {
      const auto place = s.place(x, y);
      const Expr &n = place.n, &chunk = place.chunk;
      Expr row = chunk * c.rows(), group = Expr(in.heads) / in.key_heads;
      s.leave_unless(n, row);
      Shared qs({c.rows(), c.features()}, c.type), ks({c.rows(), c.features()}, c.type);
      copy(s.head(q, n, key_head).at(row), qs);
      copy(s.head(k, n, key_head).at(row), ks);
      const auto of_head = [&](const Expr& h, Fragment& own_dq, Fragment& own_dk) {
        const Chunk own{n, h, chunk, row, in.last_row(n, row), qs, ks};
        Fragment ds({c.rows(), c.rows()}, f32, 0), both({c.features()}, f32, 0);
        add_columns(own, ds, own_dq, own_dk, both);
        finish(own, ds, own_dq, own_dk, both);
      };
      Fragment all_dq({c.rows(), c.features()}, f32, 0), all_dk({c.rows(), c.features()}, f32, 0);
      if (c.grouped)
        serial(group, [&](Index member) {
          Fragment own_dq({c.rows(), c.features()}, f32, 0), own_dk({c.rows(), c.features()}, f32, 0);
          of_head(key_head * group + member, own_dq, own_dk);
          parallel(all_dq, [&](Index i, Index j) {
            all_dq(i, j) += own_dq(i, j);
            all_dk(i, j) += own_dk(i, j);
          });
        });
      else
        of_head(key_head, all_dq, all_dk);
      copy(all_dq, s.head(dq, n, key_head).at(row));
      copy(all_dk, s.head(dk, n, key_head).at(row));
    });
  }

 private:
  struct Chunk {
    Expr n, h, chunk, row, last;
    const Shared &q, &k;
  };

  // Some columns of values at a time: products with the states, and of dout and v.
  void add_columns(const Chunk& own, Fragment& ds, Fragment& own_dq, Fragment& own_dk, Fragment& both) const {
    const Sequences& s = in.s;
    pipelined(in.blocks(), {.stages = 2}, [&](Index x) {
      Expr column = x * c.block;
      Shared vs({c.rows(), c.block}, c.type), douts({c.rows(), c.block}, c.type);
      Shared state({c.features(), c.block}, c.type), dstate({c.features(), c.block}, c.type);
      copy(s.head(v, own.n, own.h).at(own.row, column), vs);
      copy(s.head(dout, own.n, own.h).at(own.row, column), douts);
      copy(s.chunk(states, own.n, own.chunk, own.h).at(0, column), state);
      copy(s.chunk(dstates, own.n, own.chunk, own.h).at(0, column), dstate);
      add_ones(c, vs, column);
      gemm(douts, vs.T(), ds);
      gemm(douts, state.T(), own_dq);
      gemm(vs, dstate.T(), own_dk);
      if (c.gated)
        reduce_sum(map(state, [&](Index i, Index j) { return f32(state(i, j)) * f32(dstate(i, j)); }), both);
    });
  }

  // What products of the chunk itself add, and the gradient of its gates.
  void finish(const Chunk& own, Fragment& ds, Fragment& own_dq, Fragment& own_dk,
              const Fragment& both) const {
    GateTile gates(c);
    if (c.gated) gates.load(in.vector(sums, own.n, own.chunk, own.h));
    parallel(own_dq, [&](Index i, Index j) { own_dq(i, j) *= scale; });
    gates.grow(own_dq);
    gates.fade(own_dk, own.last);
    gates.mask(ds, scale);
    Shared rounded({c.rows(), c.rows()}, c.type);
    copy(ds, rounded);
    if (c.gated) write_dsums(own, gates, ds, own_dq, own_dk, both);
    gemm(rounded, own.k, own_dq);
    gemm(rounded.T(), own.q, own_dk);
  }

  void write_dsums(const Chunk& own, const GateTile& gates, Fragment& ds, const Fragment& own_dq,
                   const Fragment& own_dk, const Fragment& both) const {
    Fragment scores({c.rows(), c.rows()}, f32, 0);
    gemm(own.q, own.k.T(), scores);
    Fragment dg = reduce_sum(map(own_dq, [&](Index i, Index j) { return own_dq(i, j) * f32(own.q(i, j)); }));
    Fragment lost =
        reduce_sum(map(own_dk, [&](Index i, Index j) { return own_dk(i, j) * f32(own.k(i, j)); }));
    Expr at_last = reduce_sum(both).scalar() * exp2(gates.at(own.last)) + reduce_sum(lost).scalar();
    parallel(ds, [&](Index i, Index j) { ds(i, j) *= scores(i, j); });
    reduce_sum(ds, dg);
    Fragment columns = reduce_sum(ds, 0);
    parallel(dg, [&](Index i) { dg(i) += select(i == own.last, at_last, 0) - lost(i) - columns(i); });
    copy(dg, in.s.head(dsums, own.n, own.h).at(own.row));
  }

  const ScanKernel& c;
  ScanInputs in;
  Tensor q, k, v, dout, states, dstates, sums;
  Expr scale;
  Tensor dq, dk, dsums;
};

}  // namespace

Kernel scan_gradients_kernel(const ScanKernel& c) {
  return kernel(instance_name("scan_gradients", c), [&] { ChunkGradients(c).run(); });
}

}  // namespace tegula::ops

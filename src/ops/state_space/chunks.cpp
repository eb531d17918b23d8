#include "ops/state_space/chunks.hpp"

#include "ops/linear/scan_pieces.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Blocks for sequence, head, chunk and first column of values; they are independent. Heads beside each other
// are neighbours in memory, chunks in order read the keys of a head while the cache has them.
template <class F>
void each_chunk(const ScanInputs& in, const Order& order, const F& body) {
  grid(in.heads, in.s.chunks(in.c.rows()) * in.blocks(), in.s.parts(), {.order = order},
       [&](Index h, Index x, Index y) {
         const auto place = in.s.place(x / in.blocks(), y);
         Expr column = x % in.blocks() * in.c.block;
         in.s.hold_promise(place.n);
         // One step, so that the next block's tiles come under this block's work.
         pipelined(1, {.stages = 1}, [&](Index) { body(place.n, h, place.chunk, column); });
       });
}

Extents states_of_chunks(const ScanInputs& in) { return {in.s.batch, in.chunks, in.heads, in.c.d_v, in.c.d}; }

}  // namespace

Kernel chunk_states_kernel(const ScanKernel& c) {
  return kernel(instance_name("ssd_chunk_states", c), [&] {
    ScanInputs in(c);
    Sequences& s = in.s;
    Tensor k = in.keys("k"), v = in.values("v");
    Tensor sums = in.vectors("sums"), weights = in.vectors("weights");
    Tensor states = output("states", states_of_chunks(in), f32);
    Tensor decays = output("decays", {s.batch, in.chunks, in.heads}, f32);
    s.declare_chunks();
    each_chunk(in, {}, [&](const Expr& n, const Expr& h, const Expr& chunk, const Expr& column) {
      Expr row = chunk * c.rows();
      Shared ks({c.rows(), c.features()}, c.type), vs({c.rows(), c.block}, c.type);
      GateTile gates(c);
      copy(s.head(k, n, in.key_head(h)).at(row), ks);
      copy(s.head(v, n, h).at(row, column), vs);
      gates.load(in.vector(sums, n, chunk, h));
      gates.load_weights(in.vector(weights, n, chunk, h));
      // A chunk without tokens leaves nothing, and a state before it stays as it is.
      Expr last = c.packed ? max(in.last_row(n, row), 0) : in.last_row(n, row);
      Fragment state({c.block, c.features()}, f32, 0);
      std::optional<Shared> own;
      gemm(gates.faded(vs, last, own).T(), ks, state);
      copy(state, s.chunk(states, n, chunk, h).at(column));
      when(column == 0,
           [&] { decays(c.packed ? Expr(0) : Expr(n), s.chunk_number(n, chunk), h) = exp2(gates.at(last)); });
    });
  });
}

Kernel chunk_scan_kernel(const ScanKernel& c) {
  return kernel(instance_name("ssd_chunk_scan", c), [&] {
    ScanInputs in(c);
    Sequences& s = in.s;
    Tensor q = in.keys("q"), k = in.keys("k"), v = in.values("v");
    Tensor sums = in.vectors("sums"), weights = in.vectors("weights");
    Tensor starts = input("starts", states_of_chunks(in), f32);
    Tensor shares = c.skip ? input("D", {in.heads}, f32) : q, z = c.gate ? in.values("z") : q;
    Tensor out = output("out", in.columns(), c.result);
    s.declare_chunks();
    each_chunk(in, Order::column(), [&](const Expr& n, const Expr& h, const Expr& chunk, const Expr& column) {
      Expr row = chunk * c.rows();
      Shared qs({c.rows(), c.features()}, c.type), ks({c.rows(), c.features()}, c.type);
      Shared vs({c.rows(), c.block}, c.type), start({c.block, c.features()}, c.type);
      GateTile gates(c);
      copy(s.head(q, n, in.key_head(h)).at(row), qs);
      copy(s.head(k, n, in.key_head(h)).at(row), ks);
      copy(s.head(v, n, h).at(row, column), vs);
      copy(s.chunk(starts, n, chunk, h).at(column), start);
      gates.load(in.vector(sums, n, chunk, h));
      gates.load_weights(in.vector(weights, n, chunk, h));
      Fragment scores({c.rows(), c.rows()}, f32, 0), o({c.rows(), c.block}, f32, 0);
      gemm(qs, ks.T(), scores);
      gemm(qs, start.T(), o);
      gates.mask(scores, 1);
      gates.grow(o);
      gemm(scores.to(c.type), vs, o);
      if (c.skip) {
        Expr share = shares(h);
        parallel(o, [&](Index i, Index j) { o(i, j) += share * f32(vs(i, j)); });
      }
      if (c.gate) {
        Fragment gate = load(s.head(z, n, h).at(row, column), {c.rows(), c.block}, f32);
        parallel(o, [&](Index i, Index j) { o(i, j) *= gate(i, j) / (1 + exp(-gate(i, j))); });
      }
      copy(o, s.head(out, n, h).at(row, column));
    });
  });
}

}  // namespace tegula::ops

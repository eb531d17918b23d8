#include "ops/state_space/chunks.hpp"

#include <algorithm>

#include "ops/linear/scan_pieces.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Blocks for sequence, head, chunk and first column of values; they are independent.
template <class F>
void each_chunk(const ScanInputs& in, const F& body) {
  grid(in.s.most_chunks() * in.blocks(), in.heads, in.s.count(), [&](Index x, Index h, Index n) {
    Expr chunk = x / in.blocks(), column = x % in.blocks() * in.c.block;
    // One step, so that the next block's tiles come under this block's work.
    pipelined(1, {.stages = 1}, [&](Index) { body(n, h, chunk, column); });
  });
}

Extents states_of_chunks(const ScanInputs& in) { return {in.s.batch, in.chunks, in.heads, in.c.d_v, in.c.d}; }

}  // namespace

Kernel chunk_states_kernel(const ScanKernel& c) {
  return kernel(instance_name("ssd_chunk_states", c), [&] {
    ScanInputs in(c);
    Sequences& s = in.s;
    Tensor k = in.keys("k"), v = in.values("v");
    Tensor sums = input("sums", in.of_heads(), f32), weights = input("weights", in.of_heads(), f32);
    Tensor states = output("states", states_of_chunks(in), f32);
    Tensor decays = output("decays", {s.batch, in.chunks, in.heads}, f32);
    s.declare();
    each_chunk(in, [&](const Expr& n, const Expr& h, const Expr& chunk, const Expr& column) {
      Expr row = chunk * c.rows();
      Shared ks({c.rows(), c.features()}, c.type), vs({c.rows(), c.block}, c.type);
      GateTile gates(c);
      copy(s.head(k, n, in.key_head(h)).at(row), ks);
      copy(s.head(v, n, h).at(row, column), vs);
      gates.load(s.head(sums, n, h).at(row));
      gates.load_weights(s.head(weights, n, h).at(row));
      Expr last = in.last_row(n, row);
      Fragment state({c.block, c.features()}, f32, 0);
      std::optional<Shared> own;
      gemm(gates.faded(vs, last, own).T(), ks, state);
      copy(state, s.chunk(states, n, chunk, h).at(column));
      when(column == 0, [&] { decays(n, chunk, h) = exp(gates.at(last)); });
    });
  });
}

Kernel chunk_scan_kernel(const ScanKernel& c) {
  return kernel(instance_name("ssd_chunk_scan", c), [&] {
    ScanInputs in(c);
    Sequences& s = in.s;
    Tensor q = in.keys("q"), k = in.keys("k"), v = in.values("v");
    Tensor sums = input("sums", in.of_heads(), f32), weights = input("weights", in.of_heads(), f32);
    Tensor starts = input("starts", states_of_chunks(in), f32);
    Tensor shares = c.skip ? input("D", {in.heads}, f32) : q, z = c.gate ? in.values("z") : q;
    Tensor out = output("out", in.columns(), c.result);
    s.declare();
    each_chunk(in, [&](const Expr& n, const Expr& h, const Expr& chunk, const Expr& column) {
      Expr row = chunk * c.rows();
      Shared qs({c.rows(), c.features()}, c.type), ks({c.rows(), c.features()}, c.type);
      Shared vs({c.rows(), c.block}, c.type), start({c.block, c.features()}, c.type);
      GateTile gates(c);
      copy(s.head(q, n, in.key_head(h)).at(row), qs);
      copy(s.head(k, n, in.key_head(h)).at(row), ks);
      copy(s.head(v, n, h).at(row, column), vs);
      copy(s.chunk(starts, n, chunk, h).at(column), start);
      gates.load(s.head(sums, n, h).at(row));
      gates.load_weights(s.head(weights, n, h).at(row));
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

Kernel state_passing_kernel(const StatePassingKernel& c) {
  constexpr int elements = 2048;  // of a block's part of a state
  return kernel(instance_name("ssd_state_passing", c), [&] {
    const int columns = (c.n + 15) / 16 * 16, rows = std::clamp(elements / columns, 1, 64);
    Dim batch("batch"), chunks("chunks"), heads("heads");
    const Extents all_states{batch, chunks, heads, c.p, c.n}, ends{batch, heads, c.p, c.n};
    Tensor states = input("states", all_states, f32), decays = input("decays", {batch, chunks, heads}, f32);
    Tensor initial = c.first ? input("initial_state", ends, f32) : states;
    Tensor starts = output("starts", all_states, f32), last = output("final_state", ends, f32);
    grid(ceildiv(c.p, rows), heads, batch, [&](Index y, Index h, Index b) {
      Fragment state({rows, columns}, f32, 0);
      if (c.first) copy(initial.slice(b, h).at(y * rows), state);
      serial(chunks, [&](Index chunk) {
        copy(state, starts.slice(b, chunk, h).at(y * rows));
        Fragment own = load(states.slice(b, chunk, h).at(y * rows), {rows, columns});
        Expr decay = decays(b, chunk, h);
        parallel(state, [&](Index i, Index j) { state(i, j) = state(i, j) * decay + own(i, j); });
      });
      copy(state, last.slice(b, h).at(y * rows));
    });
  });
}

}  // namespace tegula::ops

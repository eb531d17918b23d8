// The pass over states of chunks, and its gradients.
#include <algorithm>

#include "ops/state_space/chunks.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

int StatePassingKernel::rows() const {
  constexpr int elements = 2048;
  return std::clamp(elements / columns(), 1, 64);
}

namespace {

// Tensors of chunks, [batch, chunks, heads, …], by sequence.
class Passing {
 public:
  Dim batch{"batch"}, chunks{"chunks"}, heads{"heads"};

  explicit Passing(const StatePassingKernel& kernel) : c(kernel) {}
  // Call this after the other parameters.
  void declare() {
    if (!c.packed) return;
    fences_dim_.emplace("fences");
    fences_.emplace(input("cu_chunks", {*fences_dim_}, i32));
  }
  Extents of_chunks() const { return {batch, chunks, heads, c.p, c.n}; }
  Extents ends() {
    if (!c.packed) return {batch, heads, c.p, c.n};
    if (!sequences_) sequences_.emplace("sequences");
    return {*sequences_, heads, c.p, c.n};
  }
  Expr count(const Expr& n) const {
    return fences_ ? Expr((*fences_)(n + 1)) - Expr((*fences_)(n)) : Expr(chunks);
  }
  Tensor own(const Tensor& t, const Expr& n) const {
    return fences_ ? t.slice(0, range((*fences_)(n), (*fences_)(n + 1))) : t.slice(n);
  }
  // Blocks for first row, head and sequence.
  template <class F>
  void each(const F& body) const {
    Expr sequences = fences_ ? fences_->extent(0) - 1 : Expr(batch);
    grid(ceildiv(c.p, c.rows()), heads, sequences, [&](Index y, Index h, Index n) { body(y, h, n); });
  }

 private:
  const StatePassingKernel& c;
  std::optional<Dim> fences_dim_, sequences_;
  std::optional<Tensor> fences_;
};

}  // namespace

Kernel state_passing_kernel(const StatePassingKernel& c) {
  return kernel(instance_name("ssd_state_passing", c), [&] {
    Passing in(c);
    Tensor states = input("states", in.of_chunks(), f32);
    Tensor decays = input("decays", {in.batch, in.chunks, in.heads}, f32);
    Tensor initial = c.first ? input("initial_state", in.ends(), f32) : states;
    Tensor starts = output("starts", in.of_chunks(), f32), last = output("final_state", in.ends(), f32);
    in.declare();
    in.each([&](const Expr& y, const Expr& h, const Expr& n) {
      Expr row = y * c.rows();
      Fragment state({c.rows(), c.columns()}, f32, 0);
      if (c.first) copy(initial.slice(n, h).at(row), state);
      serial(in.count(n), [&](Index chunk) {
        copy(state, in.own(starts, n).slice(chunk, h).at(row));
        Fragment own = load(in.own(states, n).slice(chunk, h).at(row), {c.rows(), c.columns()});
        Expr decay = in.own(decays, n)(chunk, h);
        parallel(state, [&](Index i, Index j) { state(i, j) = state(i, j) * decay + own(i, j); });
      });
      copy(state, last.slice(n, h).at(row));
    });
  });
}

Kernel state_passing_gradients_kernel(const StatePassingKernel& c) {
  return kernel(instance_name("ssd_state_passing_gradients", c), [&] {
    Passing in(c);
    Tensor starts = input("starts", in.of_chunks(), f32);
    Tensor decays = input("decays", {in.batch, in.chunks, in.heads}, f32);
    Tensor dstarts = input("dstarts", in.of_chunks(), f32), dlast = input("dfinal_state", in.ends(), f32);
    Tensor dstates = output("dstates", in.of_chunks(), f32);
    Tensor of_blocks = output("parts", {in.batch, in.chunks, in.heads, static_cast<int>(c.blocks())}, f32);
    Tensor dinitial = c.first ? output("dinitial_state", in.ends(), f32) : dstates;
    in.declare();
    in.each([&](const Expr& y, const Expr& h, const Expr& n) {
      Expr row = y * c.rows(), count = in.count(n);
      const auto own = [&](const Tensor& t, const Expr& chunk) {
        return in.own(t, n).slice(chunk, h).at(row);
      };
      Fragment dstate = load(dlast.slice(n, h).at(row), {c.rows(), c.columns()});
      serial(count, [&](Index step) {
        Expr chunk = count - 1 - step;
        copy(dstate, own(dstates, chunk));
        Fragment before = load(own(starts, chunk), {c.rows(), c.columns()});
        Fragment given = load(own(dstarts, chunk), {c.rows(), c.columns()});
        parallel(before, [&](Index i, Index j) { before(i, j) *= dstate(i, j); });
        in.own(of_blocks, n)(chunk, h, y) = reduce_sum(reduce_sum(before)).scalar();
        Expr decay = in.own(decays, n)(chunk, h);
        parallel(dstate, [&](Index i, Index j) { dstate(i, j) = dstate(i, j) * decay + given(i, j); });
      });
      if (c.first) copy(dstate, dinitial.slice(n, h).at(row));
    });
  });
}

Kernel decay_sums_kernel(const StatePassingKernel& c) {
  constexpr int heads_of_tile = 128;
  return kernel(instance_name("ssd_decay_sums", c), [&] {
    Dim batch("batch"), chunks("chunks"), heads("heads");
    const int blocks = static_cast<int>(c.blocks());
    Tensor of_blocks = input("parts", {batch, chunks, heads, blocks}, f32);
    Tensor ddecays = output("ddecays", {batch, chunks, heads}, f32);
    grid(ceildiv(heads, heads_of_tile), chunks, batch, [&](Index x, Index chunk, Index b) {
      parallel(heads_of_tile, [&](Index i) {
        Expr h = x * heads_of_tile + i;
        Var sum = 0.0f;
        serial(blocks, [&](Index block) { sum += of_blocks(b, chunk, h, block); });
        ddecays(b, chunk, h) = sum;
      });
    });
  });
}

}  // namespace tegula::ops

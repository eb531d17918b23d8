// The states of a gated delta rule from chunk to chunk: V_new = U − W · state, state = e^g state + Kᵀ V_new.
#include <functional>

#include "tests/variants/variants.hpp"

namespace variants::gated_delta_state_variants {
namespace {

using namespace tegula::lang;

constexpr int dk = 128, columns = 64, chunk = 64;

struct Inputs {
  Dim C{"C"}, H{"H"};
  Tensor K = input("K", {C * chunk, H, dk}, bf16), W = input("W", {C * chunk, H, dk}, bf16);
  Tensor U = input("U", {C * chunk, H, dk}, bf16), G = input("G", {H, C*chunk}, f32);
  Tensor states = output("states", {C, H, dk, dk}, bf16), V = output("V", {C * chunk, H, dk}, bf16);
};
// What a step has, and what it is of.
struct Step {
  const Inputs& in;
  const Index &c, &h, &x;
  Fragment& state;

  Shared tile(const Tensor& from, int width) const {
    Shared result({chunk, width}, bf16);
    copy(from.slice(all, h).at(c * chunk, width == dk ? Expr(x * 0) : Expr(x * columns)), result);
    return result;
  }
  Shared factors() const {
    Shared g({chunk}, f32);
    copy(in.G.slice(h).at(c * chunk), g);
    return g;
  }
  Tensor values() const { return in.V.slice(all, h, range(x * columns, (x + 1) * columns)); }
  Tensor kept() const { return in.states.slice(c, h, all, range(x * columns, (x + 1) * columns)); }
};
using Way = std::function<void(const Step&)>;

Kernel states(const Way& way) {
  return kernel("states", [&] {
    Inputs in;
    grid(dk / columns, in.H, {.threads = 128}, [&](Index x, Index h) {
      Fragment state({dk, columns}, f32, 0);
      pipelined(in.C, {.stages = 2}, [&](Index c) { way({in, c, h, x, state}); });
    });
  });
}

void decay(Fragment& v, const Shared& g) {
  parallel(v, [&](Index i, Index j) { v(i, j) *= exp(g(chunk - 1) - g(i)); });
}

void loads_first(const Step& t) {
  Shared w = t.tile(t.in.W, dk), u = t.tile(t.in.U, columns), k = t.tile(t.in.K, dk), g = t.factors();
  Shared rounded({dk, columns}, bf16), gained({chunk, columns}, bf16);
  copy(t.state, rounded);
  copy(rounded, t.kept().at(0, 0));
  Fragment v({chunk, columns}, f32, 0);
  gemm(w, rounded, v);
  parallel(v, [&](Index i, Index j) { v(i, j) = u(i, j) - v(i, j); });
  copy(v, t.values().at(t.c * chunk, 0));
  decay(v, g);
  Expr factor = exp(g(chunk - 1));
  parallel(t.state, [&](Index i, Index j) { t.state(i, j) *= factor; });
  copy(v, gained);
  gemm(k.T(), gained, t.state);
}
void keys_loaded_late(const Step& t) {
  Shared w = t.tile(t.in.W, dk), u = t.tile(t.in.U, columns);
  Shared rounded({dk, columns}, bf16), gained({chunk, columns}, bf16);
  copy(t.state, rounded);
  copy(rounded, t.kept().at(0, 0));
  Fragment v({chunk, columns}, f32, 0);
  gemm(w, rounded, v);
  parallel(v, [&](Index i, Index j) { v(i, j) = u(i, j) - v(i, j); });
  copy(v, t.values().at(t.c * chunk, 0));
  Shared k = t.tile(t.in.K, dk), g = t.factors();
  decay(v, g);
  parallel(t.state, [&](Index i, Index j) { t.state(i, j) *= exp(g(chunk - 1)); });
  copy(v, gained);
  gemm(k.T(), gained, t.state);
}
// The state as registers hold it is stored.
void state_stored_from_registers(const Step& t) {
  Shared w = t.tile(t.in.W, dk), u = t.tile(t.in.U, columns), k = t.tile(t.in.K, dk), g = t.factors();
  Shared rounded({dk, columns}, bf16), gained({chunk, columns}, bf16);
  copy(t.state, rounded);
  copy(t.state, t.kept().at(0, 0));
  Fragment v({chunk, columns}, f32, 0);
  gemm(w, rounded, v);
  parallel(v, [&](Index i, Index j) { v(i, j) = u(i, j) - v(i, j); });
  copy(v, t.values().at(t.c * chunk, 0));
  decay(v, g);
  parallel(t.state, [&](Index i, Index j) { t.state(i, j) *= exp(g(chunk - 1)); });
  copy(v, gained);
  gemm(k.T(), gained, t.state);
}
// Every tile is made by a loop over its elements.
void by_loops(const Step& t) {
  Shared w = t.tile(t.in.W, dk), u = t.tile(t.in.U, columns), k = t.tile(t.in.K, dk), g = t.factors();
  Shared rounded({dk, columns}, bf16), gained({chunk, columns}, bf16);
  parallel(rounded, [&](Index i, Index j) { rounded(i, j) = t.state(i, j); });
  copy(rounded, t.kept().at(0, 0));
  Fragment product({chunk, columns}, f32), v({chunk, columns}, f32);
  clear(product);
  gemm(w, rounded, product);
  parallel(v, [&](Index i, Index j) { v(i, j) = u(i, j) - product(i, j); });
  copy(v, t.values().at(t.c * chunk, 0));
  parallel(gained, [&](Index i, Index j) { gained(i, j) = v(i, j) * exp(g(chunk - 1) - g(i)); });
  parallel(t.state, [&](Index i, Index j) { t.state(i, j) *= exp(g(chunk - 1)); });
  gemm(k.T(), gained, t.state);
}
void factors_by_name(const Step& t) {
  Shared g = t.factors(), k = t.tile(t.in.K, dk), u = t.tile(t.in.U, columns), w = t.tile(t.in.W, dk);
  Shared rounded({dk, columns}, bf16), gained({chunk, columns}, bf16);
  Fragment factor({chunk}, f32);
  parallel(factor, [&](Index i) { factor(i) = exp(g(chunk - 1) - g(i)); });
  copy(t.state, rounded);
  copy(rounded, t.kept().at(0, 0));
  Fragment v({chunk, columns}, f32, 0);
  gemm(w, rounded, v);
  parallel(v, [&](Index i, Index j) { v(i, j) = u(i, j) - v(i, j); });
  copy(v, t.values().at(t.c * chunk, 0));
  parallel(v, [&](Index i, Index j) { v(i, j) *= factor(i); });
  parallel(t.state, [&](Index i, Index j) { t.state(i, j) *= exp(g(chunk - 1)); });
  copy(v, gained);
  gemm(k.T(), gained, t.state);
}

TEST(GatedDeltaStateInSeveralWays, IsPlannedAlike) {
  expect_planned_alike({{"loads first", states(loads_first)},
                        {"keys loaded late", states(keys_loaded_late)},
                        {"the state stored from registers", states(state_stored_from_registers)},
                        {"by loops over elements", states(by_loops)},
                        {"factors by name", states(factors_by_name)}});
}

}  // namespace
}  // namespace variants::gated_delta_state_variants

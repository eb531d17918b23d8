#include "tegula/ops/selective_state_update.hpp"

#include <algorithm>

#include "ops/schema/schema.hpp"
#include "ops/state_space/example.hpp"
#include "ops/state_space/softplus.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = f32, state = f32, dt = f32;
  int p = 64, n = 128, rows = 16;  // features, those of states, and rows of a tile
  bool skip = false, gate = false, bias = false, softplus = false;
  auto fields() const {
    return std::tuple(type, labelled("state", state), labelled("dt", dt), labelled("p", p), labelled("n", n),
                      labelled("r", rows), labelled("skip", skip), labelled("gate", gate),
                      labelled("bias", bias), labelled("softplus", softplus));
  }
};

Instance plan(const Bound<SelectiveStateUpdate>& c) {
  const int n = c.small_dim("n");
  return {c.type("x"),
          c.type("state"),
          c.type("dt"),
          c.small_dim("p"),
          n,
          std::clamp(4096 / std::max(n, 1), 1, 64),
          c.has("D"),
          c.has("z"),
          c.has("dt_bias"),
          c->dt_softplus};
}

Kernel program(const Instance& c) {
  return kernel(instance_name("selective_state_update", c), [&] {
    Dim batch("batch"), heads("heads"), groups("groups");
    const Extents rows_shape{batch, heads, c.p}, of_heads{heads, c.p};
    Tensor state = input("state", {batch, heads, c.p, c.n}, c.state), x = input("x", rows_shape, c.type);
    Tensor dt = input("dt", rows_shape, c.dt), rates = input("A", {heads, c.p, c.n}, f32);
    Tensor writes = input("B", {batch, groups, c.n}, c.type),
           reads = input("C", {batch, groups, c.n}, c.type);
    Tensor shares = c.skip ? input("D", of_heads, f32) : rates,
           z = c.gate ? input("z", rows_shape, c.type) : x;
    Tensor bias = c.bias ? input("dt_bias", of_heads, f32) : rates;
    Tensor out = output("out", rows_shape, c.type);
    Tensor next = output("new_state", {batch, heads, c.p, c.n}, c.state);
    grid(ceildiv(c.p, c.rows), heads, batch, [&](Index y, Index h, Index b) {
      Expr row = y * c.rows, group = h / (Expr(heads) / groups);
      Fragment own = load(state.slice(b, h).at(row), {c.rows, c.n}, f32);
      Fragment rate = load(rates.slice(h).at(row), {c.rows, c.n});
      Fragment xs = load(x.slice(b, h).at(row), {c.rows}, f32),
               step = load(dt.slice(b, h).at(row), {c.rows}, f32);
      Fragment write = load(writes.slice(b, group).at(0), {c.n}, f32);
      Fragment read = load(reads.slice(b, group).at(0), {c.n}, f32);
      if (c.bias) {
        Fragment added = load(bias.slice(h).at(row), {c.rows});
        parallel(step, [&](Index i) { step(i) += added(i); });
      }
      if (c.softplus) parallel(step, [&](Index i) { step(i) = softplus(step(i)); });
      parallel(own, [&](Index i, Index j) {
        own(i, j) = own(i, j) * exp(step(i) * rate(i, j)) + step(i) * xs(i) * write(j);
      });
      copy(own, next.slice(b, h).at(row));
      Fragment sum = reduce_sum(map(own, [&](Index i, Index j) { return own(i, j) * read(j); }));
      if (c.skip) {
        Fragment share = load(shares.slice(h).at(row), {c.rows});
        parallel(sum, [&](Index i) { sum(i) += share(i) * xs(i); });
      }
      if (c.gate) {
        Fragment gate = load(z.slice(b, h).at(row), {c.rows}, f32);
        parallel(sum, [&](Index i) { sum(i) *= gate(i) / (1 + exp(-gate(i))); });
      }
      copy(sum, out.slice(b, h).at(row));
    });
  });
}

void formula(const Bound<SelectiveStateUpdate>& c, Exact& exact) {
  const std::int64_t n = c.dim("n"), p = c.dim("p"), group = c.dim("group"), heads = c.dim("heads");
  const double *state = exact.data("state"), *x = exact.data("x"), *dt = exact.data("dt"),
               *A = exact.data("A"), *B = exact.data("B"), *C = exact.data("C"), *D = exact.data_if("D"),
               *z = exact.data_if("z"), *bias = exact.data_if("dt_bias");
  double *out = exact.data("out"), *next = exact.data("new_state");
  for (std::int64_t b = 0; b < c.dim("batch"); ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t j = 0; j < p; ++j) {
        const std::int64_t row = (b * heads + h) * p + j, own = h * p + j,
                           key = (b * (heads / group) + h / group) * n;
        const double raw = dt[row] + (bias ? bias[own] : 0), step = c->dt_softplus ? softplus_of(raw) : raw;
        double sum = D ? D[own] * x[row] : 0;
        for (std::int64_t i = 0; i < n; ++i) {
          next[row * n + i] =
              state[row * n + i] * std::exp(step * A[own * n + i]) + step * x[row] * B[key + i];
          sum += next[row * n + i] * C[key + i];
        }
        out[row] = z ? sum * z[row] / (1 + std::exp(-z[row])) : sum;
      }
}

}  // namespace

const OperatorSchema& selective_state_update_schema() {
  using Op = SelectiveStateUpdate;
  static const OperatorSchema table =
      Schema<Op>("selective_state_update", "one step of a selective state space model")
          .in(&Op::state, "state", "batch groups*group p n", floats, "states before the token")
          .unit_stride()
          .in(&Op::x, "x", "batch groups*group p", floats, "values")
          .in(&Op::dt, "dt", "batch groups*group p", floats, "step widths")
          .values(between_of_example<0, 3>)
          .in(&Op::A, "A", "groups*group p n", is(f32), "logarithms of decays of a step of width 1")
          .values(between_of_example<-10, 0>)
          .in(&Op::B, "B", "batch groups n", same_as("x"), "vectors by which values are written to the state")
          .in(&Op::C, "C", "batch groups n", same_as("x"), "vectors by which the state is read")
          .in(&Op::D, "D", "groups*group p", is(f32), "factors of x that is added to the result")
          .in(&Op::z, "z", "batch groups*group p", same_as("x"), "gate: results are multiplied by silu(z)")
          .in(&Op::dt_bias, "dt_bias", "groups*group p", is(f32), "added to dt")
          .let("heads", "groups*group")
          .option(&Op::dt_softplus, "dt_softplus",
                  "applies softplus to the steps: log(1 + exp(dt + dt_bias))")
          .require("B", "1 <= n & n <= 512", "1 to 512 features of states", "split them")
          .require("x", "group >= 1", "a multiple of the groups of heads", "give x a head for each group")
          .out(&Op::out, "out", "batch groups*group p", same_as("x"), "(new_state . C + D * x) * silu(z)")
          .out(&Op::new_state, "new_state", "batch groups*group p n", same_as("state"),
               "exp(dt * A) * state + dt * x * B")
          .unit_stride()
          .source("Gu and Dao 2023, Mamba; Dao and Gu 2024, Transformers are SSMs")
          .no_gradient("it is a step of inference; ssd has gradients")
          .flops("6*batch*groups*group*p*n")
          .examples({{"ragged", "batch=3 groups=1 group=2 p=18 n=20 D z dt_bias dt_softplus"},
                     {"bf16", "batch=2 groups=2 group=2 p=64 n=128 bf16 state:f32 dt:f32 D dt_softplus"}})
          .measured({{"128_80x64_128_bf16",
                      "batch=128 groups=1 group=80 p=64 n=128 bf16 state:f32 D z "
                      "dt_bias dt_softplus"}})
          .run(plan, program, formula);
  return table;
}

}  // namespace tegula::ops

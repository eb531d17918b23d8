#include "tegula/ops/ssd_chunks.hpp"

#include "ops/schema/schema.hpp"
#include "ops/state_space/chunks.hpp"
#include "ops/state_space/example.hpp"
#include "ops/state_space/softplus.hpp"
#include "ops/state_space/steps.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t chunk_rows = chunk_tokens_of_scan;

template <class Op>
ScanKernel chunk_kernel(const Bound<Op>& c) {
  ScanKernel scan;
  scan.type = scan.result = c.type("x");
  scan.d = c.small_dim("n"), scan.d_v = c.small_dim("p");
  scan.gated = scan.weighted = true;
  return wide(scan);
}

struct ChunkSteps {
  Tensor steps, sums;
};

template <class Op>
ChunkSteps form_chunk_steps(const Bound<Op>& c, Launch& launch) {
  const Shape shape{c.dim("batch"), c.dim("tokens"), c.dim("heads")};
  ChunkSteps result{launch.scratch(shape, f32), launch.scratch(shape, f32)};
  launch(StepsKernel{c.type("dt"), c.has("dt_bias"), c->dt_softplus, false}, steps_kernel,
         {{"dt", c.formed("dt")}, {"steps", result.steps}, {"sums", result.sums}});
  return result;
}

void run_chunk_states(const Bound<SsdChunkState>& c, Launch& launch) {
  const ChunkSteps steps = form_chunk_steps(c, launch);
  launch(chunk_kernel(c), chunk_states_kernel,
         {{"k", c.formed("B")}, {"v", c.formed("x")}, {"sums", steps.sums}, {"weights", steps.steps}});
}

void run_chunk_scan(const Bound<SsdChunkScan>& c, Launch& launch) {
  const ChunkSteps steps = form_chunk_steps(c, launch);
  ScanKernel scan = chunk_kernel(c);
  scan.skip = c.has("D"), scan.gate = c.has("z");
  launch(scan, chunk_scan_kernel,
         {{"q", c.formed("C")},
          {"k", c.formed("B")},
          {"v", c.formed("x")},
          {"sums", steps.sums},
          {"weights", steps.steps}});
}

StatePassingKernel plan_of_passing(const Bound<SsdStatePassing>& c) {
  return {c.small_dim("p"), c.small_dim("n"), c.has("initial_state")};
}

// A chunk of a head: its tokens' steps, and the sums of their logarithms of decays from its first token on.
struct ChunkOfFormula {
  std::int64_t first, count, head, key_head, row;  // first token of all, and rows of states
  std::vector<double> steps, sums;
};

template <class Op, class F>
void each_chunk_of_formula(const Bound<Op>& c, Exact& exact, const F& body) {
  const std::int64_t tokens = c.dim("tokens"), heads = c.dim("heads"), chunks = c.dim("chunks");
  const double *dt = exact.data("dt"), *A = exact.data("A"), *bias = exact.data_if("dt_bias");
  for (std::int64_t row = 0; row < c.dim("batch") * chunks * heads; ++row) {
    const std::int64_t chunk = row / heads % chunks, head = row % heads;
    ChunkOfFormula own{row / heads / chunks * tokens + chunk * chunk_rows,
                       std::min(chunk_rows, tokens - chunk * chunk_rows),
                       head,
                       head / c.dim("group"),
                       row,
                       {},
                       {}};
    double sum = 0;
    for (std::int64_t t = own.first; t < own.first + own.count; ++t) {
      const double raw = dt[t * heads + head] + (bias ? bias[head] : 0);
      own.steps.push_back(c->dt_softplus ? softplus_of(raw) : raw);
      own.sums.push_back(sum += own.steps.back() * A[head]);
    }
    body(own);
  }
}

void formula_of_chunk_states(const Bound<SsdChunkState>& c, Exact& exact) {
  const std::int64_t n = c.dim("n"), p = c.dim("p"), heads = c.dim("heads"), groups = c.dim("groups");
  const double *x = exact.data("x"), *B = exact.data("B");
  double *states = exact.data("states"), *decays = exact.data("decays");
  each_chunk_of_formula(c, exact, [&](const ChunkOfFormula& own) {
    const double total = own.sums.back();
    decays[own.row] = std::exp(total);
    double* state = states + own.row * p * n;
    std::fill(state, state + p * n, 0.0);
    for (std::int64_t i = 0; i < own.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t t = own.first + i;
      for (std::int64_t j = 0; j < p; ++j) {
        const double weighted = exact.rounded(x[(t * heads + own.head) * p + j] * own.steps[at]),
                     written = exact.rounded(weighted * std::exp(total - own.sums[at]));
        for (std::int64_t e = 0; e < n; ++e)
          state[j * n + e] += written * B[(t * groups + own.key_head) * n + e];
      }
    }
  });
}

void formula_of_passing(const Bound<SsdStatePassing>& c, Exact& exact) {
  const std::int64_t chunks = c.dim("chunks"), heads = c.dim("heads"), elements = c.dim("p") * c.dim("n");
  const double *states = exact.data("states"), *decays = exact.data("decays"),
               *initial = exact.data_if("initial_state");
  double *starts = exact.data("starts"), *last = exact.data("final_state");
  for (std::int64_t own = 0; own < c.dim("batch") * heads; ++own)
    for (std::int64_t e = 0; e < elements; ++e) {
      double state = initial ? initial[own * elements + e] : 0;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t row = (own / heads * chunks + chunk) * heads + own % heads;
        starts[row * elements + e] = state;
        state = state * decays[row] + states[row * elements + e];
      }
      last[own * elements + e] = state;
    }
}

void formula_of_chunk_scan(const Bound<SsdChunkScan>& c, Exact& exact) {
  const std::int64_t n = c.dim("n"), p = c.dim("p"), heads = c.dim("heads"), groups = c.dim("groups");
  const double *x = exact.data("x"), *B = exact.data("B"), *C = exact.data("C"),
               *starts = exact.data("starts"), *D = exact.data_if("D"), *z = exact.data_if("z");
  double* out = exact.data("out");
  each_chunk_of_formula(c, exact, [&](const ChunkOfFormula& own) {
    const auto key = [&](const double* of, std::int64_t t) { return of + (t * groups + own.key_head) * n; };
    for (std::int64_t i = 0; i < own.count; ++i) {
      const double* read = key(C, own.first + i);
      const double grown = own.sums[static_cast<std::size_t>(i)];
      std::vector<double> scores;
      for (std::int64_t s = 0; s <= i; ++s) {
        const auto at = static_cast<std::size_t>(s);
        double score = 0;
        for (std::int64_t e = 0; e < n; ++e) score += read[e] * key(B, own.first + s)[e];
        scores.push_back(exact.rounded(score * own.steps[at] * std::exp(grown - own.sums[at])));
      }
      for (std::int64_t j = 0; j < p; ++j) {
        const std::int64_t at = ((own.first + i) * heads + own.head) * p + j;
        double sum = 0;
        for (std::int64_t e = 0; e < n; ++e)
          sum += read[e] * exact.rounded(starts[(own.row * p + j) * n + e]);
        sum *= std::exp(grown);
        for (std::int64_t s = 0; s <= i; ++s)
          sum += scores[static_cast<std::size_t>(s)] * x[((own.first + s) * heads + own.head) * p + j];
        if (D) sum += D[own.head] * x[at];
        out[at] = z ? sum * z[at] / (1 + std::exp(-z[at])) : sum;
      }
    }
  });
}

// What both operators over tokens derive steps and keys from.
template <class Op>
void add_chunk_inputs(Schema<Op>& table) {
  table.in(&Op::x, "x", "batch tokens groups*group p", floats, "values")
      .unit_stride()
      .in(&Op::dt, "dt", "batch tokens groups*group", floats, "step widths")
      .values(between_of_example<0, 3>)
      .in(&Op::A, "A", "groups*group", is(f32), "logarithms of decays of a step of width 1, at most 0")
      .values(between_of_example<-10, 0>)
      .in(&Op::B, "B", "batch tokens groups n", same_as("x"),
          "vectors by which values are written to the state")
      .unit_stride();
}
template <class Op>
void add_chunk_rules(Schema<Op>& table) {
  table.in(&Op::dt_bias, "dt_bias", "groups*group", is(f32), "added to dt")
      .values(between_of_example<0, 5>)
      .let("heads", "groups*group")
      .option(&Op::dt_softplus, "dt_softplus", "applies softplus to the steps: log(1 + exp(dt + dt_bias))")
      .require("B", "1 <= n & n <= 256", "1 to 256 features of states", "split them")
      .require("x", "1 <= p & p <= 512", "1 to 512 features", "split the heads")
      .require("x", "group >= 1", "a multiple of the groups of heads", "give x a head for each group")
      .source("Dao and Gu 2024, Transformers are SSMs")
      .no_gradient("it is a step of ssd, whose gradient is ssd_backward");
}

}  // namespace

const OperatorSchema& ssd_chunk_state_schema() {
  using Op = SsdChunkState;
  static const OperatorSchema table =
      Schema<Op>("ssd_chunk_state", "the state that each chunk of tokens leaves, as in Mamba-2")
          .with(add_chunk_inputs<Op>)
          .with(add_chunk_rules<Op>)
          .let("chunks", "ceildiv(tokens,64)")
          .out(&Op::states, "states", "batch ceildiv(tokens,64) groups*group p n", is(f32),
               "sum over a chunk of decay to its end * dt * x B^T")
          .steps_of("x")
          .out(&Op::decays, "decays", "batch ceildiv(tokens,64) groups*group", is(f32),
               "by which a state before the chunk fades")
          .flops("2*batch*tokens*groups*group*n*p")
          .examples({{"ragged", "batch=2 tokens=70 groups=1 group=2 p=9 n=10 dt_bias dt_softplus"},
                     {"bf16", "batch=1 tokens=130 groups=2 group=1 p=20 n=32 bf16 dt:f32"}})
          .measured({{"8x4096_80x64_128_bf16",
                      "batch=8 tokens=4096 groups=1 group=80 p=64 n=128 bf16 dt:f32 dt_bias dt_softplus"}})
          .run(run_chunk_states, formula_of_chunk_states);
  return table;
}

const OperatorSchema& ssd_state_passing_schema() {
  using Op = SsdStatePassing;
  static const OperatorSchema table =
      Schema<Op>("ssd_state_passing", "the states before each chunk, from those that chunks leave")
          .in(&Op::states, "states", "batch chunks heads p n", is(f32), "states that chunks leave")
          .unit_stride()
          .in(&Op::decays, "decays", "batch chunks heads", is(f32), "factors by which states fade")
          .values(between_of_example<1, 10>)
          .in(&Op::initial_state, "initial_state", "batch heads p n", is(f32),
              "states before the first token; zeros if omitted")
          .unit_stride()
          .require("states", "1 <= n & n <= 256", "1 to 256 features of states", "split them")
          .require("states", "1 <= p & p <= 512", "1 to 512 features", "split the heads")
          .out(&Op::starts, "starts", "batch chunks heads p n", is(f32), "states before each chunk")
          .unit_stride()
          .out(&Op::final_state, "final_state", "batch heads p n", is(f32), "states after the last chunk")
          .unit_stride()
          .source("Dao and Gu 2024, Transformers are SSMs")
          .no_gradient("it is a step of ssd, whose gradient is ssd_backward")
          .flops("2*batch*chunks*heads*n*p")
          .examples({{"ragged", "batch=2 chunks=3 heads=2 p=9 n=10 initial_state"}})
          .measured({{"8x64_80x64_128", "batch=8 chunks=64 heads=80 p=64 n=128"}})
          .run(plan_of_passing, state_passing_kernel, formula_of_passing);
  return table;
}

const OperatorSchema& ssd_chunk_scan_schema() {
  using Op = SsdChunkScan;
  static const OperatorSchema table =
      Schema<Op>("ssd_chunk_scan", "the results of ssd from the states before each chunk of tokens")
          .with(add_chunk_inputs<Op>)
          .in(&Op::C, "C", "batch tokens groups n", same_as("x"), "vectors by which the state is read")
          .unit_stride()
          .in(&Op::starts, "starts", "batch ceildiv(tokens,64) groups*group p n", is(f32),
              "states before each chunk")
          .unit_stride()
          .in(&Op::D, "D", "groups*group", is(f32), "factors of x, which is added to the result")
          .in(&Op::z, "z", "batch tokens groups*group p", same_as("x"),
              "gate: results are multiplied by silu(z)")
          .unit_stride()
          .with(add_chunk_rules<Op>)
          .let("chunks", "ceildiv(tokens,64)")
          .out(&Op::out, "out", "batch tokens groups*group p", same_as("x"),
               "(state after the token . C + D * x) * silu(z)")
          .flops("batch*tokens*groups*group*(2*n*p+64*(n+p))")
          .examples({{"ragged", "batch=2 tokens=70 groups=1 group=2 p=9 n=10 D z dt_bias dt_softplus"},
                     {"bf16", "batch=1 tokens=130 groups=2 group=1 p=20 n=32 bf16 dt:f32"}})
          .measured({{"8x4096_80x64_128_bf16",
                      "batch=8 tokens=4096 groups=1 group=80 p=64 n=128 bf16 dt:f32 D dt_bias dt_softplus"}})
          .run(run_chunk_scan, formula_of_chunk_scan);
  return table;
}

}  // namespace tegula::ops

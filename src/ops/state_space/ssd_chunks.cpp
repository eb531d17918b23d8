#include "tegula/ops/ssd_chunks.hpp"

#include "ops/schema/gradient.hpp"
#include "ops/state_space/chunk_calls.hpp"
#include "ops/state_space/example.hpp"
#include "ops/state_space/softplus.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t chunk_rows = chunk_tokens_of_scan;

// A chunk of a head: its tokens' steps, and the sums of their logarithms of decays from its first token on.
template <class Number>
struct ChunkOfFormula {
  std::int64_t first, count, head, key_head, row;  // first token of all, and rows of states
  std::vector<Number> steps, sums;
};

template <class Op, class E, class F>
void each_chunk_of_formula(const Bound<Op>& c, E& exact, const F& body) {
  using Number = typename E::Number;
  const std::int64_t heads = c.dim("heads");
  const bool packed = c.has("cu_seqlens");
  const auto *dt = exact.data("dt"), *A = exact.data("A"), *bias = exact.data_if("dt_bias");
  std::int64_t number = 0;  // of a chunk among all
  for (const Span& span : spans_of(c.call())) {
    const std::int64_t end = span.first + span.count,
                       chunks = packed ? end / chunk_rows - span.first / chunk_rows + 1
                                       : (span.count + chunk_rows - 1) / chunk_rows;
    for (std::int64_t i = 0; i < chunks * heads; ++i) {
      const std::int64_t first = span.first + i / heads * chunk_rows, head = i % heads;
      ChunkOfFormula<Number> own{first,
                                 std::clamp(end - first, std::int64_t{0}, chunk_rows),
                                 head,
                                 head / c.dim("group"),
                                 number * heads + i,
                                 {},
                                 {}};
      Number sum = 0;
      for (std::int64_t t = own.first; t < own.first + own.count; ++t) {
        const Number raw = bias ? dt[t * heads + head] + bias[head] : dt[t * heads + head];
        own.steps.push_back(c->dt_softplus ? softplus_of(raw) : raw);
        sum += own.steps.back() * A[head];
        own.sums.push_back(sum);
      }
      body(own);
    }
    number += chunks;
  }
}

template <class E>
void formula_of_chunk_states(const Bound<SsdChunkState>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t n = c.dim("n"), p = c.dim("p"), heads = c.dim("heads"), groups = c.dim("groups");
  const auto *x = exact.data("x"), *B = exact.data("B");
  auto *states = exact.data("states"), *decays = exact.data("decays");
  each_chunk_of_formula(c, exact, [&](const ChunkOfFormula<Number>& own) {
    const Number total = own.sums.empty() ? Number(0) : own.sums.back();
    decays[own.row] = exp(total);
    Number* state = states + own.row * p * n;
    std::fill(state, state + p * n, Number(0));
    for (std::int64_t i = 0; i < own.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t t = own.first + i;
      for (std::int64_t j = 0; j < p; ++j) {
        const Number weighted = exact.rounded(x[(t * heads + own.head) * p + j] * own.steps[at]),
                     written = exact.rounded(weighted * exp(total - own.sums[at]));
        for (std::int64_t e = 0; e < n; ++e)
          state[j * n + e] += exact.rounded(written * B[(t * groups + own.key_head) * n + e]);
      }
    }
  });
}

template <class E>
void formula_of_passing(const Bound<SsdStatePassing>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t chunks = c.dim("chunks"), heads = c.dim("heads"), elements = c.dim("p") * c.dim("n");
  const auto *states = exact.data("states"), *decays = exact.data("decays"),
             *initial = exact.data_if("initial_state");
  auto *starts = exact.data("starts"), *last = exact.data("final_state");
  const bool packed = c.has("cu_chunks");
  const auto fence = [&](std::int64_t n) {
    if (!packed) return n * chunks;
    const TensorRef& fences = c["cu_chunks"];
    return std::int64_t{fences.data_as<const std::int32_t>()[n * fences.strides[0]]};
  };
  for (std::int64_t own = 0; own < c.dim(packed ? "sequences" : "batch") * heads; ++own)
    for (std::int64_t e = 0; e < elements; ++e) {
      Number state = initial ? initial[own * elements + e] : Number(0);
      for (std::int64_t chunk = fence(own / heads); chunk < fence(own / heads + 1); ++chunk) {
        const std::int64_t row = chunk * heads + own % heads;
        starts[row * elements + e] = state;
        state = state * decays[row] + states[row * elements + e];
      }
      last[own * elements + e] = state;
    }
}

template <class E>
void formula_of_chunk_scan(const Bound<SsdChunkScan>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t n = c.dim("n"), p = c.dim("p"), heads = c.dim("heads"), groups = c.dim("groups");
  const auto *x = exact.data("x"), *B = exact.data("B"), *C = exact.data("C"), *starts = exact.data("starts"),
             *D = exact.data_if("D"), *z = exact.data_if("z");
  auto* out = exact.data("out");
  each_chunk_of_formula(c, exact, [&](const ChunkOfFormula<Number>& own) {
    const auto key = [&](const Number* of, std::int64_t t) { return of + (t * groups + own.key_head) * n; };
    for (std::int64_t i = 0; i < own.count; ++i) {
      const Number* read = key(C, own.first + i);
      const Number grown = own.sums[static_cast<std::size_t>(i)];
      std::vector<Number> scores;
      for (std::int64_t s = 0; s <= i; ++s) {
        const auto at = static_cast<std::size_t>(s);
        Number score = 0;
        for (std::int64_t e = 0; e < n; ++e) score += read[e] * key(B, own.first + s)[e];
        scores.push_back(exact.rounded(score * exp(grown - own.sums[at])));
      }
      for (std::int64_t j = 0; j < p; ++j) {
        const std::int64_t at = ((own.first + i) * heads + own.head) * p + j;
        Number sum = 0;
        for (std::int64_t e = 0; e < n; ++e)
          sum += read[e] * exact.rounded(starts[(own.row * p + j) * n + e]);
        sum = sum * exp(grown);
        for (std::int64_t s = 0; s <= i; ++s) {
          const auto token = static_cast<std::size_t>(s);
          sum += scores[token] *
                 exact.rounded(x[((own.first + s) * heads + own.head) * p + j] * own.steps[token]);
        }
        if (D) sum += D[own.head] * x[at];
        out[at] = z ? sum * z[at] / (1 + exp(-z[at])) : sum;
      }
    }
  });
}

// A tensor that each chunk of tokens has.
std::string chunk_list(const char* others) {
  return fmt::format("cu_seqlens ? tokens/64+sequences {0} : batch ceildiv(tokens,64) {0}", others);
}

// What both operators over tokens derive steps and keys from.
template <class Op>
void add_chunk_inputs(Schema<Op>& table) {
  table.in(&Op::x, "x", token_list("groups*group p"), floats, "values")
      .unit_stride()
      .in(&Op::dt, "dt", token_list("groups*group"), floats, "step widths")
      .values(between_of_example<0, 3>)
      .in(&Op::A, "A", "groups*group", is(f32), "logarithms of decays of a step of width 1, at most 0")
      .values(between_of_example<-10, 0>)
      .cancels()
      .in(&Op::B, "B", token_list("groups n"), same_as("x"),
          "vectors by which values are written to the state")
      .unit_stride();
}
template <class Op>
void add_chunk_rules(Schema<Op>& table) {
  table.in(&Op::dt_bias, "dt_bias", "groups*group", is(f32), "added to dt")
      .values(between_of_example<0, 5>)
      .cancels()
      .with(add_fences<Op>)
      .let("heads", "groups*group")
      .option(&Op::dt_softplus, "dt_softplus", "applies softplus to the steps: log(1 + exp(dt + dt_bias))")
      .require("B", "1 <= n & n <= 256", "1 to 256 features of states", "split them")
      .require("x", "1 <= p & p <= 512", "1 to 512 features", "split the heads")
      .require("x", "group >= 1", "a multiple of the groups of heads", "give x a head for each group")
      .source("Dao and Gu 2024, Transformers are SSMs");
}

std::string sequence_states() { return "cu_chunks ? sequences heads p n : batch heads p n"; }
std::string chunk_states() { return "cu_chunks ? chunks heads p n : batch chunks heads p n"; }

}  // namespace

const OperatorSchema& ssd_chunk_state_schema() {
  using Op = SsdChunkState;
  static const OperatorSchema table =
      Schema<Op>("ssd_chunk_state", "the state that each chunk of tokens leaves, as in Mamba-2")
          .with(add_chunk_inputs<Op>)
          .with(add_chunk_rules<Op>)
          .out(&Op::states, "states", chunk_list("groups*group p n"), is(f32),
               "sum over a chunk of decay to its end * dt * x B^T")
          .steps_of("x")
          .out(&Op::decays, "decays", chunk_list("groups*group"), is(f32),
               "by which a state before the chunk fades")
          .gradient("ssd_chunk_state_backward")
          .flops("2*batch*tokens*groups*group*n*p")
          .examples({{"ragged", "batch=2 tokens=70 groups=1 group=2 p=9 n=10 dt_bias dt_softplus"},
                     {"bf16", "batch=1 tokens=130 groups=2 group=1 p=20 n=32 bf16 dt:f32"},
                     {"packed_f16",
                      "tokens=150 sequences=3 cu_seqlens groups=1 group=2 p=16 n=16 f16 dt:f32 dt_bias"}})
          .measured({{"8x4096_80x64_128_bf16",
                      "batch=8 tokens=4096 groups=1 group=80 p=64 n=128 bf16 dt:f32 dt_bias dt_softplus"}})
          .run(run_chunk_states, formula_of_chunk_states<Exact>);
  return table;
}

const OperatorSchema& ssd_chunk_state_backward_schema() {
  return gradient_table<run_chunk_states_backward, formula_of_chunk_states<Traced>>(
      ssd_chunk_state_schema(), "4*batch*tokens*groups*group*n*p", "x");
}

const OperatorSchema& ssd_state_passing_schema() {
  using Op = SsdStatePassing;
  static const OperatorSchema table =
      Schema<Op>("ssd_state_passing", "the states before each chunk, from those that chunks leave")
          .in(&Op::states, "states", chunk_states(), is(f32), "states that chunks leave")
          .unit_stride()
          .in(&Op::decays, "decays", "cu_chunks ? chunks heads : batch chunks heads", is(f32),
              "factors by which states fade")
          .values(between_of_example<1, 10>)
          .in(&Op::initial_state, "initial_state", sequence_states(), is(f32),
              "states before the first token; zeros if omitted")
          .unit_stride()
          .in(&Op::cu_chunks, "cu_chunks", "sequences+1", index,
              "boundaries of packed sequences: sequence i has the chunks from entry i up to entry i + 1")
          .packs("chunks")
          .require("states", "1 <= n & n <= 256", "1 to 256 features of states", "split them")
          .require("states", "1 <= p & p <= 512", "1 to 512 features", "split the heads")
          .out(&Op::starts, "starts", chunk_states(), is(f32), "states before each chunk")
          .unit_stride()
          .out(&Op::final_state, "final_state", sequence_states(), is(f32), "states after the last chunk")
          .unit_stride()
          .source("Dao and Gu 2024, Transformers are SSMs")
          .gradient("ssd_state_passing_backward")
          .flops("2*batch*chunks*heads*n*p")
          .examples({{"ragged", "batch=2 chunks=3 heads=2 p=9 n=10 initial_state"},
                     {"packed", "chunks=7 sequences=3 cu_chunks heads=2 p=20 n=16 initial_state"}})
          .measured({{"8x64_80x64_128", "batch=8 chunks=64 heads=80 p=64 n=128"}})
          .run(run_passing, formula_of_passing<Exact>);
  return table;
}

const OperatorSchema& ssd_state_passing_backward_schema() {
  return gradient_table<run_passing_backward, formula_of_passing<Traced>>(ssd_state_passing_schema(),
                                                                          "4*batch*chunks*heads*n*p", "");
}

const OperatorSchema& ssd_chunk_scan_schema() {
  using Op = SsdChunkScan;
  static const OperatorSchema table =
      Schema<Op>("ssd_chunk_scan", "the results of ssd from the states before each chunk of tokens")
          .with(add_chunk_inputs<Op>)
          .in(&Op::C, "C", token_list("groups n"), same_as("x"), "vectors by which the state is read")
          .unit_stride()
          .in(&Op::starts, "starts", chunk_list("groups*group p n"), is(f32), "states before each chunk")
          .unit_stride()
          .in(&Op::D, "D", "groups*group", is(f32), "factors of x, which is added to the result")
          .in(&Op::z, "z", token_list("groups*group p"), same_as("x"),
              "gate: results are multiplied by silu(z)")
          .unit_stride()
          .with(add_chunk_rules<Op>)
          .out(&Op::out, "out", token_list("groups*group p"), same_as("x"),
               "(state after the token . C + D * x) * silu(z)")
          .gradient("ssd_chunk_scan_backward")
          .flops("batch*tokens*groups*group*(2*n*p+64*(n+p))")
          .examples(
              {{"ragged", "batch=2 tokens=70 groups=1 group=2 p=9 n=10 D z dt_bias dt_softplus"},
               {"bf16", "batch=1 tokens=130 groups=2 group=1 p=20 n=32 bf16 dt:f32"},
               {"packed_f16", "tokens=150 sequences=3 cu_seqlens groups=1 group=2 p=16 n=16 f16 dt:f32 D"}})
          .measured({{"8x4096_80x64_128_bf16",
                      "batch=8 tokens=4096 groups=1 group=80 p=64 n=128 bf16 dt:f32 D dt_bias dt_softplus"}})
          .run(run_chunk_scan, formula_of_chunk_scan<Exact>);
  return table;
}

const OperatorSchema& ssd_chunk_scan_backward_schema() {
  return gradient_table<run_chunk_scan_backward, formula_of_chunk_scan<Traced>>(
      ssd_chunk_scan_schema(), "batch*tokens*groups*group*(6*n*p+128*(n+p))", "x");
}

}  // namespace tegula::ops

#include "tegula/ops/ssd.hpp"

#include "ops/linear/maps.hpp"
#include "ops/linear/scan_segments.hpp"
#include "ops/linear/scan_short.hpp"
#include "ops/schema/gradient.hpp"
#include "ops/state_space/example.hpp"
#include "ops/state_space/softplus.hpp"
#include "ops/state_space/steps.hpp"

namespace tegula::ops {

namespace {

using Call = Bound<Ssd>;

// States are [p, n] to callers, and [n, p] to programs.
TensorRef state_view(const Call& c, const char* name) {
  TensorRef state = c.given(name);
  if (state.rank() != 4) return state;
  std::swap(state.shape[2], state.shape[3]);
  std::swap(state.strides[2], state.strides[3]);
  return state;
}

ScanKernel scan_of(const Call& c) {
  ScanKernel scan;
  scan.type = scan.result = c.type("x");
  scan.d = c.small_dim("n"), scan.d_v = c.small_dim("p");
  scan.gated = true, scan.first = c.has("initial_state"), scan.packed = c.has("cu_seqlens");
  return scan;
}

ScanKernel scan_of_gradient(const Call& c) {
  ScanKernel scan = scan_of(c), with_states = scan;
  with_states.last = c.has("dfinal_state");
  scan.of_tile = tile_of_short_gradients(c.call(), with_states);
  return scan;
}

void run_scan(const Call& c, Launch& launch, const Steps& steps, const TensorRef& out, ScanKernel scan) {
  scan.weighted = true, scan.skip = c.has("D");
  launch_scan(c.call(), launch, scan,
              {.q = token_view(c.call(), "C"),
               .k = token_view(c.call(), "B"),
               .v = token_view(c.call(), "x"),
               .z = scan.gate ? token_view(c.call(), "z") : TensorRef(),
               .sums = steps.sums,
               .weights = steps.weights,
               .out = out,
               .initial_state = state_view(c, "initial_state"),
               .final_state = scan.last ? state_view(c, "final_state") : TensorRef()});
}

void run(const Call& c, Launch& launch) {
  ScanKernel scan = scan_of(c);
  scan.gate = c.has("z"), scan.last = c->output_final_state;
  scan.of_tile = tile_of_short(c.call(), scan);
  run_scan(c, launch, form_weights(c.call(), launch, c->dt_softplus, tile_of_sums(scan)),
           token_view(c.call(), "out"), scan);
}

// The gradients of a call, grid by grid.
class SsdBackward {
 public:
  SsdBackward(const Call& call, Launch& launcher) : c(call), launch(launcher) {}
  void run() {
    complete_gradients();
    if (scan.of_tile) {
      differentiate_tiles();
    } else {
      differentiate_states();
      differentiate_chunks();
    }
    differentiate_steps(c.call(), launch, products, {steps.steps, dv, dy, skips, dsums});
  }

 private:
  // v and dy of the scan, and dz where results have gates.
  void complete_gradients() {
    if (gate) run_scan(c, launch, steps, y, scan);
    launch(products, step_values_kernel,
           {{"x", x},
            {"steps", steps.steps},
            {"z", token_view(c.call(), "z")},
            {"dout", dout},
            {"y", y},
            {"v", v},
            {"dy", own_dy},
            {"dz", token_view(c.call(), "dz")},
            {"skips", skips}});
  }

  void differentiate_tiles() {
    ScanKernel tiles = scan;
    tiles.grouped = c.dim("group") > 1;
    launch_short_gradients(c.call(), launch, tiles,
                           {.q = q,
                            .k = k,
                            .v = v,
                            .dout = dy,
                            .sums = steps.sums,
                            .dq = token_view(c.call(), "dC"),
                            .dk = token_view(c.call(), "dB"),
                            .dv = dv,
                            .dsums = dsums});
  }

  void differentiate_states() {
    ScanKernel passes = scan;
    passes.last = c.has("dfinal_state");
    launch_states(c.call(), launch, passes,
                  {.q = q,
                   .k = k,
                   .v = v,
                   .sums = steps.sums,
                   .dout = dy,
                   .initial_state = state_view(c, "initial_state"),
                   .dfinal_state = state_view(c, "dfinal_state"),
                   .states = states,
                   .dstates = dstates,
                   .dv = dv,
                   .dinitial_state = scan.first ? state_view(c, "dinitial_state") : TensorRef()});
  }

  void differentiate_chunks() {
    ScanKernel chunks = scan;
    chunks.first = false, chunks.grouped = c.dim("group") > 1;
    launch(wide(chunks, c.on_gpu()), scan_gradients_kernel,
           {{"q", q},
            {"k", k},
            {"v", v},
            {"dout", dy},
            {"states", states},
            {"dstates", dstates},
            {"sums", steps.sums},
            {"scale", 1.0},
            {"dq", token_view(c.call(), "dC")},
            {"dk", token_view(c.call(), "dB")},
            {"dsums", dsums}});
  }

  const Call& c;
  Launch& launch;
  const TensorRef x = token_view(c.call(), "x"), q = token_view(c.call(), "C"), k = token_view(c.call(), "B"),
                  dout = token_view(c.call(), "dout");
  const ScanKernel scan = scan_of_gradient(c);
  const bool gate = c.has("z");
  const StepProductsKernel products{scan.type, c.type("dt"),     scan.d_v,      c.has("D"),
                                    gate,      c.has("dt_bias"), c->dt_softplus};
  const Shape columns = shape_of_heads(c.call(), {scan.d_v}), none{0};
  const Steps steps = form_steps(c.call(), launch, c->dt_softplus, gate, tile_of_sums(scan));
  const Tensor y = launch.scratch(gate ? columns : none, scan.type),
               own_dy = launch.scratch(gate ? columns : none, scan.type),
               v = launch.scratch(columns, scan.type), dv = launch.scratch(columns, scan.type),
               states = launch.scratch(
                   scan.of_tile ? none : chunk_shape(c.call(), {c.dim("heads"), scan.d, scan.d_v}),
                   scan.type),
               dstates = launch.scratch(states.shape(), scan.type),
               skips = launch.scratch(gate ? shape_of_heads(c.call()) : none, f32),
               dsums = launch.scratch(shape_of_heads(c.call()), f32);
  const TensorRef dy = gate ? own_dy.ref() : dout;
};

void run_backward(const Call& c, Launch& launch) { SsdBackward(c, launch).run(); }

template <class E>
void formula(const Call& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t n_features = c.dim("n"), p = c.dim("p"), group = c.dim("group"), heads = c.dim("heads");
  auto *x = exact.data("x"), *dt = exact.data("dt"), *A = exact.data("A"), *B = exact.data("B"),
       *C = exact.data("C"), *D = exact.data_if("D"), *z = exact.data_if("z"),
       *bias = exact.data_if("dt_bias"), *initial = exact.data_if("initial_state"), *out = exact.data("out"),
       *end = exact.data_if("final_state");
  const std::vector<Span> spans = spans_of(c.call());
  for (std::size_t n = 0; n < spans.size(); ++n)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = (static_cast<std::int64_t>(n) * heads + h) * p * n_features;
      std::vector<Number> state(p * n_features);
      if (initial) state.assign(initial + at, initial + at + p * n_features);
      for (std::int64_t t = spans[n].first; t < spans[n].first + spans[n].count; ++t) {
        const std::int64_t row = t * heads + h, key = (t * (heads / group) + h / group) * n_features;
        const Number raw = bias ? dt[row] + bias[h] : dt[row], step = c->dt_softplus ? softplus_of(raw) : raw,
                     factor = exact.rounded(exp(step * A[h]));
        for (std::int64_t j = 0; j < p; ++j) {
          const Number own = x[row * p + j], written = exact.rounded(step * own);
          Number sum = 0;
          for (std::int64_t i = 0; i < n_features; ++i) {
            Number& s = state[j * n_features + i];
            s = exact.rounded(s) * factor + exact.rounded(written * B[key + i]);
            sum += C[key + i] * exact.rounded(s);
          }
          const Number y = exact.rounded(D ? sum + D[h] * own : sum);
          out[row * p + j] = z ? y * z[row * p + j] / (1 + exp(-z[row * p + j])) : y;
        }
      }
      if (end) std::copy(state.begin(), state.end(), end + at);
    }
}

void add_inputs(Schema<Ssd>& table) {
  table.in(&Ssd::x, "x", token_list("groups*group p"), floats, "values")
      .unit_stride()
      .in(&Ssd::dt, "dt", token_list("groups*group"), floats, "step widths")
      .values(between_of_example<0, 3>)
      .in(&Ssd::A, "A", "groups*group", is(f32), "logarithms of decays of a step of width 1, at most 0")
      .values(between_of_example<-10, 0>)
      .cancels()
      .in(&Ssd::B, "B", token_list("groups n"), same_as("x"),
          "vectors by which values are written to the state")
      .unit_stride()
      .in(&Ssd::C, "C", token_list("groups n"), same_as("x"), "vectors by which the state is read")
      .unit_stride()
      .in(&Ssd::D, "D", "groups*group", is(f32), "factors of x, which is added to the result")
      .in(&Ssd::z, "z", token_list("groups*group p"), same_as("x"), "gate: results are multiplied by silu(z)")
      .unit_stride()
      .in(&Ssd::dt_bias, "dt_bias", "groups*group", is(f32), "added to dt")
      .values(between_of_example<0, 5>)
      .cancels()
      .in(&Ssd::initial_state, "initial_state", sequence_list("groups*group p n"), is(f32),
          "states before the first token; zeros if omitted");
}

}  // namespace

// The gradients of A and dt_bias cancel: what a gate gets is what later tokens read less what they wrote, and
// the terms of such a sum are a hundred times the sum. A chunk's 64 tokens have them in f32 and fixed order.
const OperatorSchema& ssd_schema() {
  static const OperatorSchema table =
      Schema<Ssd>("ssd", "the scan of a state space model with one decay per head, as in Mamba-2")
          .with(add_inputs)
          .with(add_fences<Ssd>)
          .let("heads", "groups*group")
          .option(&Ssd::dt_softplus, "dt_softplus",
                  "applies softplus to the steps: log(1 + exp(dt + dt_bias))")
          .option(&Ssd::output_final_state, "output_final_state",
                  "also returns the states after the last token")
          .require("B", "1 <= n & n <= 256", "1 to 256 features of states", "split them")
          .require("x", "1 <= p & p <= 512", "1 to 512 features", "split the heads")
          .require("x", "group >= 1", "a multiple of the groups of heads", "give x a head for each group")
          .out(&Ssd::out, "out", token_list("groups*group p"), same_as("x"),
               "(state after the token . C + D * x) * silu(z)")
          .out(&Ssd::final_state, "final_state", sequence_list("groups*group p n"), is(f32),
               "states after the last token")
          .steps_of("x")
          .when("output_final_state")
          .source("Dao and Gu 2024, Transformers are SSMs")
          .gradient("ssd_backward")
          .flops(work_of_scan("groups*group", "n", "p"))
          .examples({{"ragged",
                      "batch=2 tokens=20 groups=1 group=2 p=9 n=10 D z dt_bias dt_softplus initial_state "
                      "output_final_state"},
                     {"plain_bf16", "batch=1 tokens=130 groups=2 group=1 p=20 n=32 bf16 dt:f32"},
                     {"packed_f16",
                      "tokens=150 sequences=3 cu_seqlens groups=1 group=2 p=16 n=16 f16 dt:f32 "
                      "D initial_state output_final_state"}})
          .measured({{"8x4096_80x64_128_bf16",
                      "batch=8 tokens=4096 groups=1 group=80 p=64 n=128 bf16 dt:f32 D dt_bias dt_softplus"}})
          .maps(scan_maps({"groups", "group", "n", "p", "bf16 dt:f32 D"}))
          .run(run, formula<Exact>);
  return table;
}

const OperatorSchema& ssd_backward_schema() {
  return gradient_table<run_backward, formula<Traced>>(
      ssd_schema(), gradient_work_of_scan("groups*group", "n", "p").c_str(), "x");
}

}  // namespace tegula::ops

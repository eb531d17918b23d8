#include "tegula/ops/linear_attention.hpp"

#include <cmath>

#include "ops/linear/chunk_owners.hpp"
#include "ops/linear/gradient_scans.hpp"
#include "ops/linear/maps.hpp"
#include "ops/linear/normalize.hpp"
#include "ops/linear/recurrent.hpp"
#include "ops/linear/scan_segments.hpp"
#include "ops/linear/scan_short.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/rows.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using Call = Bound<LinearAttention>;

ScanKernel scan_of(const Call& c) {
  ScanKernel scan;
  scan.type = c.type("q"), scan.result = scan.type;
  scan.d = c.small_dim("d"), scan.d_v = c.small_dim("d_v") + (c->normalize ? 1 : 0);
  scan.gated = c.has("g") || c.has("g_gamma"), scan.ones = c->normalize;
  scan.first = c.has("initial_state"), scan.packed = c.has("cu_seqlens");
  return scan;
}

// The gates of a call, summed inside chunks; no tensor where it has none.
Tensor gate_sums(const Call& c, Launch& launch, std::optional<int> of_tile = {}) {
  if (!c.has("g") && !c.has("g_gamma")) return launch.scratch({0}, f32);
  const Tensor sums = launch.scratch(vector_shape(c.call(), of_tile), f32);
  launch(GateKernel{c.type_if("g"), c.type_if("g_gamma"), false, c.has("cu_seqlens"), of_tile},
         gate_sums_kernel, {{"g", token_view(c.call(), "g")}, {"sums", sums}});
  return sums;
}

RecurrentKernel recurrent_of(const Call& c, const ScanKernel& scan, bool last) {
  RecurrentKernel kernel{.type = scan.type, .result = scan.result, .d = scan.d, .d_v = scan.d_v};
  kernel.g = c.type_if("g"), kernel.g_gamma = c.type_if("g_gamma");
  kernel.ones = scan.ones, kernel.first = scan.first, kernel.last = last, kernel.packed = scan.packed;
  return kernel;
}

// The sums before they are normalised, or the results.
void run_sums(const Call& c, Launch& launch, const TensorRef& out, DType result, bool last) {
  const TensorRef q = token_view(c.call(), "q"), k = token_view(c.call(), "k"), v = token_view(c.call(), "v");
  ScanKernel scan = scan_of(c);
  scan.result = result, scan.last = last, scan.of_tile = tile_of_short(c.call(), scan);
  const double scale = c.real("scale");
  if (!scan.of_tile && goes_by_token(c.call(), {.head = 40, .call = 12}))
    return launch(
        recurrent_of(c, scan, last), recurrent_kernel,
        {{"q", q}, {"k", k}, {"v", v}, {"g", token_view(c.call(), "g")}, {"scale", scale}, {"out", out}});
  scan.even = c.has("g_gamma") && !c.has("g");
  if (!scan.even) share_chunk_owners(c.call(), launch);
  const Tensor sums = scan.even ? launch.scratch({0}, f32) : gate_sums(c, launch, tile_of_sums(scan));
  const auto state = [&](const char* name, bool has) { return has ? c.call().formed(name) : TensorRef(); };
  launch_scan(c.call(), launch, scan,
              {.q = q,
               .k = k,
               .v = v,
               .sums = sums,
               .out = out,
               .initial_state = state("initial_state", scan.first),
               .final_state = state("final_state", last),
               .scale = scale});
}

void run(const Call& c, Launch& launch) {
  const TensorRef out = token_view(c.call(), "out");
  if (!c->normalize) return run_sums(c, launch, out, c.type("q"), c->output_final_state);
  const Tensor sums = launch.scratch(shape_of_heads(c.call(), {c.dim("d_v") + 1}), f32);
  run_sums(c, launch, sums, f32, c->output_final_state);
  launch(NormalizeKernel{c.type("q"), c.small_dim("d_v")}, normalize_kernel, {{"sums", sums}, {"out", out}});
}

// The gradient of the sums: that of the results, or through their division.
TensorRef gradient_of_sums(const Call& c, Launch& launch, Tensor& owner) {
  const TensorRef dout = token_view(c.call(), "dout");
  if (!c->normalize) return dout;
  const Tensor sums = launch.scratch(shape_of_heads(c.call(), {c.dim("d_v") + 1}), f32);
  run_sums(c, launch, sums, f32, false);
  owner = launch.scratch(shape_of_heads(c.call(), {c.dim("d_v") + 1}), c.type("q"));
  launch(NormalizeKernel{c.type("q"), c.small_dim("d_v")}, normalize_gradient_kernel,
         {{"sums", sums}, {"dout", dout}, {"dsums", owner}});
  return owner;
}

// The gradients of gates by `form`, which writes those of tokens; and their sums, those of heads.
template <class F>
void run_gates(const Call& c, Launch& launch, const F& form) {
  if (!c.has("g") && !c.has("g_gamma")) return form(TensorRef());
  const Tensor own = c.has("g") ? Tensor() : launch.scratch(shape_of_heads(c.call()), f32);
  const TensorRef dg = c.has("g") ? token_view(c.call(), "dg") : own.ref();
  form(dg);
  if (c.has("dg_gamma")) launch(RowSumKernel{}, row_sum_kernel, {{"x", dg}, {"total", c.given("dg_gamma")}});
}

void run_backward_by_token(const Call& c, Launch& launch, const TensorRef& dout) {
  const auto view = [&](const char* tensor) { return token_view(c.call(), tensor); };
  run_gates(c, launch, [&](const TensorRef& dg) {
    launch(recurrent_of(c, scan_of(c), c.has("dfinal_state")), recurrent_gradients_kernel,
           {{"q", view("q")},
            {"k", view("k")},
            {"v", view("v")},
            {"g", view("g")},
            {"scale", c.real("scale")},
            {"dout", dout},
            {"dq", view("dq")},
            {"dk", view("dk")},
            {"dv", view("dv")},
            {"dg", dg}});
  });
}

// By the states of chunks and their gradients.
void run_gradients_of_chunks(const Call& c, Launch& launch, ScanKernel scan, const TensorRef& dout,
                             const Tensor& sums, const Tensor& dsums) {
  const TensorRef q = token_view(c.call(), "q"), k = token_view(c.call(), "k"), v = token_view(c.call(), "v");
  const Tensor states = launch.scratch(chunk_shape(c.call(), {c.dim("heads"), scan.d, scan.d_v}), scan.type),
               dstates = launch.scratch(states.shape(), scan.type);
  const auto state = [&](const char* name, bool has) { return has ? c.call().formed(name) : TensorRef(); };
  launch_states(c.call(), launch, scan,
                {.q = q,
                 .k = k,
                 .v = v,
                 .sums = sums,
                 .dout = dout,
                 .initial_state = state("initial_state", scan.first),
                 .dfinal_state = state("dfinal_state", scan.last),
                 .scale = c.real("scale"),
                 .states = states,
                 .dstates = dstates,
                 .dv = token_view(c.call(), "dv"),
                 .dinitial_state = state("dinitial_state", scan.first)});
  scan.last = scan.first = false;
  launch(wide(scan, c.on_gpu()), scan_gradients_kernel,
         {{"q", q},
          {"k", k},
          {"v", v},
          {"dout", dout},
          {"states", states},
          {"dstates", dstates},
          {"sums", sums},
          {"scale", c.real("scale")},
          {"dq", token_view(c.call(), "dq")},
          {"dk", token_view(c.call(), "dk")},
          {"dsums", dsums}});
}

void run_backward_by_chunks(const Call& c, Launch& launch, const TensorRef& dout) {
  ScanKernel scan = scan_of(c);
  scan.last = c.has("dfinal_state"), scan.grouped = c.dim("group") > 1;
  scan.of_tile = tile_of_short_gradients(c.call(), scan);
  share_chunk_owners(c.call(), launch);
  const Tensor sums = gate_sums(c, launch, tile_of_sums(scan)),
               dsums = launch.scratch(scan.gated ? shape_of_heads(c.call()) : Shape{0}, f32);
  if (scan.of_tile)
    launch_short_gradients(c.call(), launch, scan,
                           {.q = token_view(c.call(), "q"),
                            .k = token_view(c.call(), "k"),
                            .v = token_view(c.call(), "v"),
                            .dout = dout,
                            .sums = sums,
                            .scale = c.real("scale"),
                            .dq = token_view(c.call(), "dq"),
                            .dk = token_view(c.call(), "dk"),
                            .dv = token_view(c.call(), "dv"),
                            .dsums = dsums});
  else
    run_gradients_of_chunks(c, launch, scan, dout, sums, dsums);
  run_gates(c, launch, [&](const TensorRef& dg) {
    if (scan.gated)
      launch(GateKernel{f32, {}, true, c.has("cu_seqlens")}, gate_sums_kernel, {{"g", dsums}, {"sums", dg}});
  });
}

void run_backward(const Call& c, Launch& launch) {
  Tensor owner;
  const TensorRef dout = gradient_of_sums(c, launch, owner);
  if (differentiates_by_token(c.call())) return run_backward_by_token(c, launch, dout);
  const ScanKernel scan = scan_of(c);
  if (differentiates_by_scans(c, scan)) return run_gradient_scans(c, launch, scan);
  run_backward_by_chunks(c, launch, dout);
}

// The recurrence of one head, token by token; rows of q and k are `heads` apart.
template <class E>
struct HeadFormula {
  using Number = typename E::Number;
  E& exact;
  std::int64_t d, columns;
  std::vector<Number> state;

  // The state after a token, and the sums that it gives.
  template <class Value>
  void step(const Number* q, const Number* k, const Number& factor, const Value& value, Number* sums) {
    for (std::int64_t j = 0; j < columns; ++j) sums[j] = 0;
    for (std::int64_t i = 0; i < d; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        Number& s = state[i * columns + j];
        s = s * factor + exact.rounded(k[i] * value(j));
        sums[j] += q[i] * exact.rounded(s);
      }
  }
};

template <class E>
void formula(const Call& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t d = c.dim("d"), d_v = c.dim("d_v"), columns = d_v + (c->normalize ? 1 : 0),
                     key_heads = c.dim("key_heads"), group = c.dim("group"), heads = key_heads * group;
  auto *q = exact.data("q"), *k = exact.data("k"), *v = exact.data("v"), *g = exact.data_if("g"),
       *g_gamma = exact.data_if("g_gamma"), *initial = exact.data_if("initial_state"),
       *out = exact.data("out"), *end = exact.data_if("final_state");
  const double scale = c.real("scale");
  const std::vector<Span> spans = spans_of(c.call());
  for (std::size_t n = 0; n < spans.size(); ++n)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = (static_cast<std::int64_t>(n) * heads + h) * d * columns;
      HeadFormula<E> head{exact, d, columns, std::vector<Number>(d * columns)};
      if (initial) head.state.assign(initial + at, initial + at + d * columns);
      std::vector<Number> sums(columns);
      for (std::int64_t t = spans[n].first; t < spans[n].first + spans[n].count; ++t) {
        const std::int64_t row = t * heads + h, key = (t * key_heads + h / group) * d;
        const Number gate = (g ? g[row] : Number(0)) + (g_gamma ? g_gamma[h] : Number(0));
        head.step(
            q + key, k + key, exp(gate),
            [&](std::int64_t j) { return j < d_v ? v[row * d_v + j] : Number(1); }, sums.data());
        if (c->normalize)
          for (Number& sum : sums) sum = exact.rounded(sum);
        const Number share = c->normalize ? 1 / (sums[d_v] * scale + 1e-10) : Number(1);
        for (std::int64_t j = 0; j < d_v; ++j) out[row * d_v + j] = sums[j] * scale * share;
      }
      if (end) std::copy(head.state.begin(), head.state.end(), end + at);
    }
}

// Weights, and the sums that a state has of them, are positive where results are divided by them.
Tensor products_of_example(const Shape& shape, DType type, std::uint64_t seed,
                           const std::function<std::int64_t(const std::string&)>& value) {
  return value("normalize") != 0 ? Tensor::random_uniform(shape, type, seed, 0.1, 1)
                                 : Tensor::random_normal(shape, type, seed);
}
Tensor gates_of_example(const Shape& shape, DType type, std::uint64_t seed,
                        const std::function<std::int64_t(const std::string&)>&) {
  return Tensor::random_uniform(shape, type, seed, -0.2, 0);
}

std::vector<Example> linear_attention_examples() {
  return {{"ragged",
           "batch=2 tokens=20 key_heads=1 group=2 d=10 d_v=9 g g_gamma initial_state "
           "output_final_state"},
          {"plain_f16", "batch=1 tokens=130 key_heads=2 group=1 d=32 d_v=20 f16"},
          {"normalized_bf16",
           "batch=1 tokens=70 key_heads=1 group=1 d=16 d_v=16 bf16 normalize "
           "initial_state output_final_state"},
          {"packed_bf16",
           "tokens=150 sequences=3 cu_seqlens key_heads=1 group=2 d=16 d_v=16 bf16 "
           "g initial_state output_final_state"},
          {"one_token",
           "batch=2 tokens=1 key_heads=1 group=2 d=20 d_v=40 g initial_state "
           "output_final_state"}};
}

std::vector<Example> linear_attention_measured() {
  return {
      {"8x4096_32x128_bf16", "batch=8 tokens=4096 key_heads=32 group=1 d=128 d_v=128 bf16"},
      {"retention_8x4096_32x128_bf16", "batch=8 tokens=4096 key_heads=32 group=1 d=128 d_v=128 bf16 g_gamma"},
      {"one_token_128_bf16",
       "batch=128 tokens=1 key_heads=32 group=1 d=128 d_v=128 bf16 "
       "g_gamma initial_state output_final_state"}};
}

void add_inputs(Schema<LinearAttention>& table) {
  using Op = LinearAttention;
  table.in(&Op::q, "q", token_list("key_heads d"), floats, "queries")
      .unit_stride()
      .values(products_of_example)
      .in(&Op::k, "k", token_list("key_heads d"), same_as("q"), "keys")
      .unit_stride()
      .values(products_of_example)
      .in(&Op::v, "v", token_list("key_heads*group d_v"), same_as("q"), "values")
      .unit_stride()
      .in(&Op::g, "g", token_list("key_heads*group"), is(f32), "logarithms of decays, at most 0")
      .values(gates_of_example)
      .in(&Op::g_gamma, "g_gamma", "key_heads*group", is(f32),
          "logarithms of decays of heads, which all tokens have, at most 0")
      .values(gates_of_example)
      .cancels()
      .in(&Op::initial_state, "initial_state", sequence_list("key_heads*group d d_v+normalize"), is(f32),
          "states before the first token; zeros if omitted")
      .values(products_of_example);
}

}  // namespace

const OperatorSchema& linear_attention_schema() {
  using Op = LinearAttention;
  static const OperatorSchema table =
      Schema<Op>("linear_attention", "causal linear attention, with decays or without")
          .with(add_inputs)
          .with(add_fences<Op>)
          .let("heads", "key_heads*group")
          .option(&Op::scale, "scale", "factor of the products", finite)
          .otherwise("rsqrt(d)")
          .option(&Op::normalize, "normalize",
                  "divides results by the sums of their weights, which the states keep as a last column")
          .option(&Op::output_final_state, "output_final_state",
                  "also returns the states after the last token")
          .option(&Op::g_gamma_gradient, "g_gamma_gradient",
                  "of its gradient: that of g_gamma is wanted as well; PyTorch asks for it where g_gamma "
                  "requires it")
          .require("q", "1 <= d & d <= 256", "1 to 256 features", "split the heads")
          .require("v", "1 <= d_v & d_v <= 512", "1 to 512 features", "split the heads")
          .require("v", "group >= 1", "as many heads as k, or a multiple", "give v a head for each of k")
          .out(&Op::out, "out", token_list("key_heads*group d_v"), same_as("v"),
               "scale * (sum over past tokens of their decay * (q . k) * v)")
          .out(&Op::final_state, "final_state", sequence_list("key_heads*group d d_v+normalize"), is(f32),
               "states after the last token")
          .steps_of("q")
          .when("output_final_state")
          .source(
              "Katharopoulos et al. 2020, Transformers are RNNs; Sun et al. 2023, Retentive Network; Qin "
              "et al. 2024, Lightning Attention-2")
          .gradient("linear_attention_backward")
          .flops(work_of_scan("key_heads*group", "d", "d_v"))
          .examples(linear_attention_examples())
          .measured(linear_attention_measured())
          .maps(scan_maps({.base = "bf16 g_gamma"}))
          .run(run, formula<Exact>);
  return table;
}

const OperatorSchema& linear_attention_backward_schema() {
  return gradient_table<run_backward, formula<Traced>>(
      linear_attention_schema(), gradient_work_of_scan("key_heads*group", "d", "d_v").c_str(), "q");
}

namespace {

template <class Decay>
Tensor decays_of(const char* function, std::int64_t heads, const Decay& decay) {
  if (heads < 1)
    throw ArgumentError(fmt::format("{}, argument 'heads': expected 1 or more, given {}", function, heads));
  std::vector<float> result;
  for (std::int64_t h = 0; h < heads; ++h)
    result.push_back(static_cast<float>(decay(static_cast<double>(h))));
  return Tensor::from(result);
}

}  // namespace

Tensor retention_decays(std::int64_t heads) {
  return decays_of("retention_decays", heads, [](double h) { return std::log1p(-std::exp2(-5 - h)); });
}

Tensor lightning_decays(std::int64_t heads, std::int64_t layer, std::int64_t layers) {
  if (layer < 0 || layer >= layers)
    throw ArgumentError(
        fmt::format("lightning_decays, argument 'layer': expected 0 to {}, given {}", layers - 1, layer));
  const double slope =
      8.0 / static_cast<double>(heads) * (1 - static_cast<double>(layer) / static_cast<double>(layers));
  return decays_of("lightning_decays", heads, [&](double h) { return -slope * (h + 1); });
}

}  // namespace tegula::ops

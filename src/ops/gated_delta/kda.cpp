#include "tegula/ops/kda.hpp"

#include "ops/gated_delta/delta_table.hpp"
#include "ops/gated_delta/delta_tokens.hpp"
#include "ops/gated_delta/segments.hpp"
#include "ops/gated_delta/short_rule.hpp"
#include "ops/linear/chunk_notes.hpp"
#include "ops/linear/chunk_owners.hpp"
#include "ops/linear/maps.hpp"
#include "ops/linear/unit_rows.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using KdaCall = Bound<Kda>;

// Microseconds of a GPU, of a chunk in the passes over states and of one in all programs, of a head.
struct KdaTimes {
  double chain, head;
};

// What segments of sequences add to a state and make of it, and the states that they begin with, transposed
// as those of the delta rule's passes: [batch, segments, heads, …].
struct KdaSegments {
  std::int64_t number = 1;
  Tensor ends = {}, starts = {}, map = {}, remainder = {};
};

// What the forward has formed, which the gradients need, too.
struct FormedKda {
  const KdaCall& c;
  Launch& launch;
  TensorRef q, k;
  std::vector<Tensor> owners = {};
  KdaKernel kernel = {};
  ScanKernel scan = {};
  Tensor w = {}, u = {}, decays = {}, faded_q = {}, kept = {}, scores = {}, inverse = {}, states = {},
         written = {};
  KdaSegments segments = {};

  FormedKda(const KdaCall& call, Launch& launches) : c(call), launch(launches), q(view("q")), k(view("k")) {
    kernel.type = kernel.result = c.type("q"), kernel.beta = c.type("beta");
    kernel.d = c.small_dim("d"), kernel.d_v = c.small_dim("d_v");
    kernel.packed = c.has("cu_seqlens");
    scan.type = scan.result = kernel.type, scan.d = kernel.d, scan.d_v = kernel.d_v;
    scan.packed = kernel.packed, scan.by_feature = true;
    kernel.block = wide(scan, c.on_gpu()).block;
  }
  TensorRef view(const char* tensor) const { return token_view(c.call(), tensor); }
  Tensor make(const char* heads, std::int64_t rest, DType type) const {
    return launch.scratch({c.has("cu_seqlens") ? 1 : c.dim("batch"), c.dim("tokens"), c.dim(heads), rest},
                          type);
  }
  // Memory for the states of all chunks.
  Tensor make_states() const {
    return launch.scratch(chunk_shape(c.call(), {c.dim("heads"), kernel.d, kernel.d_v}), kernel.type);
  }
  void note(const KdaTimes& times, std::int64_t number, int most_of_tile) const {
    constexpr double most = 2.2;
    constexpr std::int64_t few_chunks = 16;
    const auto heads = static_cast<double>(sequences_of(c.call()) * c.dim("heads"));
    const bool is_long = c.dim("longest") > few_chunks * chunk_tokens_of_scan;
    if (c.call().on_gpu() && is_long && times.chain + heads * times.head > most * heads * times.head)
      note_waiting_chunks(c.call(), number, launch);
    note_unfilled_chunks(c.call(), most_of_tile, launch);
  }
  // q and k by their norms, if they are wanted so.
  void normalize() {
    if (!c->qk_l2norm) return;
    for (TensorRef* x : {&q, &k}) {
      owners.push_back(make("key_heads", kernel.d, kernel.type));
      launch(UnitRowsKernel{kernel.type, kernel.d}, unit_rows_kernel, {{"x", *x}, {"y", owners.back()}});
      *x = owners.back();
    }
  }
  void form_factors(bool keep) {
    const DType type = kernel.type;
    w = make("heads", kernel.d, type), u = make("heads", kernel.d_v, type);
    faded_q = make("heads", kernel.d, type), kept = make("heads", kernel.d, type);
    scores = make("heads", kernel.rows(), type);
    decays = launch.scratch(chunk_shape(c.call(), {c.dim("heads"), kernel.d}), f32);
    inverse = keep ? make("heads", kernel.rows(), type) : launch.scratch({0}, type);
    KdaKernel factors = kernel;
    factors.keep = keep;
    share_chunk_owners(c.call(), launch);
    launch(factors, kda_factors_kernel,
           {{"q", q},
            {"k", k},
            {"v", view("v")},
            {"g", view("g")},
            {"beta", view("beta")},
            {"scale", c.real("scale")},
            {"w", w},
            {"u", u},
            {"decays", decays},
            {"faded_q", faded_q},
            {"kept", kept},
            {"scores", scores},
            {"inverse", inverse}});
  }
  // The states of all chunks, and the last, if it is wanted.
  void form_states(bool last, std::int64_t number) {
    segments.number = number;
    states = make_states(), written = make("heads", kernel.d_v, kernel.type);
    ScanKernel own = narrow();
    own.first = c.has("initial_state"), own.last = last;
    const TensorRef end = last ? given("final_state") : TensorRef();
    if (number == 1) return launch_states(own, given("initial_state"), end);
    form_segments(end);
    own.first = own.divided = true, own.last = false;
    launch_states(own, turned(segments.starts), {});
  }
  // Tensors of a call, if it has them.
  TensorRef given(const char* name) const { return c.has(name) ? c.call().formed(name) : TensorRef(); }
  // States of a call and of chunks are [.., d, d_v], those that are passed on [.., d_v, d].
  static TensorRef turned(const TensorRef& state) {
    return state.rank() < 4 ? state : state.transpose(state.rank() - 2, state.rank() - 1);
  }
  static TensorRef turned(const Tensor& state) { return turned(state.ref()); }
  Tensor make_states_of_segments() const {
    return launch.scratch({sequences_of(c.call()), segments.number, c.dim("heads"), kernel.d_v, kernel.d},
                          f32);
  }
  DeltaPass joint() const { return {kernel.type, kernel.d, kernel.d_v, rows_of_segments}; }
  ScanKernel narrow(bool map = false) const {
    ScanKernel own = scan;
    own.map = map;
    return ops::narrow(own, sequences_of(c.call()) * c.dim("heads") * segments.number, c.on_gpu());
  }

 private:
  void launch_states(const ScanKernel& own, const TensorRef& start, const TensorRef& end) const {
    launch(own, scan_states_kernel,
           {{"k", kept},
            {"v", u},
            {"w", w},
            {"decays", decays},
            {"initial_state", start},
            {"states", states},
            {"v_new", written},
            {"final_state", end},
            {"map", turned(segments.map)},
            {"map_rest", turned(segments.remainder)}});
  }
  void form_segments(const TensorRef& end) {
    const Shape maps{sequences_of(c.call()), segments.number, c.dim("heads"), kernel.d, kernel.d};
    const DType type = type_of_maps(kernel.type);
    segments.ends = make_states_of_segments(), segments.starts = make_states_of_segments();
    segments.map = launch.scratch(maps, type);
    segments.remainder = type == f32 ? segments.map : launch.scratch(maps, type);
    ScanKernel alone = narrow(true);
    alone.alone = alone.last = alone.divided = true;
    launch_states(alone, {}, turned(segments.ends));
    DeltaPass all = joint();
    all.first = c.has("initial_state"), all.last = end.rank() > 0;
    launch(all, segment_states_kernel,
           {{"ends", segments.ends},
            {"starts", segments.starts},
            {"map", segments.map},
            {"map_rest", segments.remainder},
            {"initial_state", turned(given("initial_state"))},
            {"final_state", turned(end)}});
  }
};

void run_short_kda(const KdaCall& c, Launch& launch, int rows) {
  FormedKda formed(c, launch);
  formed.normalize();
  KdaKernel kernel = formed.kernel;
  kernel.of_tile = rows, kernel.block = with_all_columns(formed.scan).block;
  launch_short_rule(c.call(), launch, kernel, short_kda_kernel, rows, formed.q, formed.k);
}

void run_kda(const KdaCall& c, Launch& launch) {
  if (const auto rows = tile_of_short_rule(c.call())) return run_short_kda(c, launch, *rows);
  if (goes_by_token(c.call(), {.head = 158, .call = 30}))
    return run_delta_tokens(c.call(), launch, delta_recurrence(c, true, c->output_final_state));
  FormedKda formed(c, launch);
  const bool has_states = c.has("initial_state") || c->output_final_state;
  const std::int64_t segments = segments_of_kda(c.call(), formed.scan, false);
  formed.note({.chain = 0.65, .head = 0.167}, segments, has_states ? 0 : chunk_tokens_of_scan / 2);
  formed.normalize();
  formed.form_factors(false);
  formed.form_states(c->output_final_state, segments);
  launch(formed.kernel, kda_outputs_kernel,
         {{"faded_q", formed.faded_q},
          {"scores", formed.scores},
          {"v", formed.written},
          {"states", formed.states},
          {"out", formed.view("out")}});
}

// What gradients of chunks by themselves pass to each other.
struct Between {
  Tensor dstates, du, dright, dscores, dlower, sums;
  explicit Between(const FormedKda& f)
      : dstates(f.make_states()),
        du(f.make("heads", f.kernel.d_v, f.kernel.type)),
        dright(f.make("heads", f.kernel.d_v, f.kernel.type)),
        dscores(f.make("heads", f.kernel.rows(), f.kernel.type)),
        dlower(f.make("heads", f.kernel.rows(), f.kernel.type)),
        sums(f.make("heads", f.kernel.steps() + 1, f32)) {}
};

void launch_state_gradients(const FormedKda& f, const Between& between, const ScanKernel& own,
                            const TensorRef& dend, const TensorRef& dstart) {
  f.launch(own, scan_state_gradients_kernel,
           {{"q", f.faded_q},
            {"k", f.kept},
            {"dout", f.view("dout")},
            {"scores", f.scores},
            {"decays", f.decays},
            {"w", f.w},
            {"dfinal_state", dend},
            {"dstates", between.dstates},
            {"dv", between.du},
            {"dinitial_state", dstart}});
}

// Gradients of segments are joined as states are, by the same maps.
void form_state_gradients(const FormedKda& f, const Between& between) {
  ScanKernel own = f.narrow();
  const TensorRef dend = f.given("dfinal_state"), dstart = f.given("dinitial_state");
  own.first = f.c.has("initial_state"), own.last = f.c.has("dfinal_state");
  if (f.segments.number == 1) return launch_state_gradients(f, between, own, dend, dstart);
  const Tensor dstarts = f.make_states_of_segments(), dends = f.make_states_of_segments();
  DeltaPass all = f.joint();
  all.first = own.first, all.last = own.last;
  ScanKernel alone = own;
  alone.alone = alone.divided = alone.first = true, alone.last = false;
  launch_state_gradients(f, between, alone, {}, f.turned(dstarts));
  f.launch(all, segment_gradients_kernel,
           {{"dstarts", dstarts},
            {"dends", dends},
            {"map", f.segments.map},
            {"map_rest", f.segments.remainder},
            {"dfinal_state", f.turned(dend)},
            {"dinitial_state", f.turned(dstart)}});
  own.divided = own.last = true, own.first = false;
  launch_state_gradients(f, between, own, f.turned(dends), {});
}

void form_chunk_gradients(const FormedKda& f, const Between& between, const TensorRef& dq,
                          const TensorRef& dk) {
  KdaKernel chunks = f.kernel;
  chunks.grouped = f.c.dim("group") > 1, chunks.result = dq.dtype;
  const double scale = f.c.real("scale");
  f.launch(chunks, kda_value_gradients_kernel,
           {{"v", f.view("v")},
            {"beta", f.view("beta")},
            {"dout", f.view("dout")},
            {"written", f.written},
            {"du", between.du},
            {"inverse", f.inverse},
            {"scale", scale},
            {"dv", f.view("dv")},
            {"dright", between.dright},
            {"dscores", between.dscores},
            {"dlower", between.dlower},
            {"sums", between.sums}});
  f.launch(chunks, kda_feature_gradients_kernel,
           {{"q", f.q},
            {"k", f.k},
            {"g", f.view("g")},
            {"beta", f.view("beta")},
            {"dout", f.view("dout")},
            {"written", f.written},
            {"dright", between.dright},
            {"states", f.states},
            {"dstates", between.dstates},
            {"dscores", between.dscores},
            {"dlower", between.dlower},
            {"scale", scale},
            {"dq", dq},
            {"dk", dk},
            {"dg", f.view("dg")},
            {"sums", between.sums}});
  f.launch(chunks, kda_share_gradients_kernel, {{"sums", between.sums}, {"dbeta", f.view("dbeta")}});
}

void run_kda_backward(const KdaCall& c, Launch& launch) {
  if (differentiates_by_token(c.call()))
    return differentiate_delta_tokens(c.call(), launch, delta_recurrence(c, true, c.has("dfinal_state")));
  FormedKda f(c, launch);
  const std::int64_t segments = segments_of_kda(c.call(), f.scan, true);
  f.note({.chain = 1.7, .head = 0.335}, segments, 0);
  f.normalize();
  f.form_factors(true);
  f.form_states(false, segments);
  const Between between(f);
  form_state_gradients(f, between);
  const TensorRef dq = f.view("dq"), dk = f.view("dk");
  if (!c->qk_l2norm) return form_chunk_gradients(f, between, dq, dk);
  const Tensor unit_dq = f.make("key_heads", f.kernel.d, f32), unit_dk = f.make("key_heads", f.kernel.d, f32);
  form_chunk_gradients(f, between, unit_dq, unit_dk);
  const UnitRowsKernel rows{f.kernel.type, f.kernel.d};
  launch(rows, unit_rows_gradient_kernel, {{"x", f.view("q")}, {"dy", unit_dq}, {"dx", dq}});
  launch(rows, unit_rows_gradient_kernel, {{"x", f.view("k")}, {"dy", unit_dk}, {"dx", dk}});
}

template <class E>
void kda_formula(const KdaCall& c, E& exact) {
  delta_formula(c, exact, true);
}

// Every fourth feature fades as fast as gates allow, so that the factors of subchunks are as far apart as
// they get.
Tensor kda_gates(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample&) {
  const Tensor gates = Tensor::random_uniform(shape, type, seed, -0.4, 0);
  auto* at = gates.data_as<float>();
  for (std::int64_t i = 0; i < gates.nelements(); ++i)
    if (i % shape.back() % 4 == 1) at[i] = static_cast<float>(least_gate);
  return gates;
}

}  // namespace

const OperatorSchema& kda_schema() {
  using Op = Kda;
  static const OperatorSchema table =
      Schema<Op>("kda", "the gated delta rule with a decay for each feature")
          .with(add_delta_inputs<Op>)
          .in(&Op::g, "g", token_list("key_heads*group d"), is(f32), "logarithms of decays, -5 to 0")
          .values(kda_gates)
          .in(&Op::beta, "beta", token_list("key_heads*group"), floats,
              "share of the stored value that is replaced, 0 to 1")
          .values(shares_of_example)
          .with(add_delta_rest<Op>)
          .require("q", "1 <= d & d <= 256", "1 to 256 features", "split the heads")
          .source("Kimi Team 2025, Kimi Linear: An Expressive, Efficient Attention Architecture")
          .gradient("kda_backward")
          .flops("6*batch*tokens*key_heads*group*d*d_v")
          .examples({{"ragged",
                      "batch=2 tokens=20 key_heads=1 group=2 d=10 d_v=9 initial_state "
                      "output_final_state"},
                     {"short_bf16",
                      "batch=3 tokens=20 key_heads=1 group=2 d=40 d_v=136 bf16 beta:bf16 "
                      "qk_l2norm"},
                     {"l2norm_bf16",
                      "batch=1 tokens=70 key_heads=1 group=1 d=32 d_v=20 bf16 beta:bf16 "
                      "qk_l2norm initial_state output_final_state"},
                     {"packed_f16",
                      "tokens=60 sequences=3 cu_seqlens key_heads=1 group=2 d=16 d_v=16 f16 "
                      "initial_state output_final_state"},
                     {"one_token",
                      "batch=2 tokens=1 key_heads=1 group=2 d=20 d_v=40 qk_l2norm "
                      "initial_state output_final_state"}})
          .measured({{"64x128_1x8k_bf16", "batch=1 tokens=8192 key_heads=64 group=1 d=128 d_v=128 bf16"},
                     {"one_token_128_bf16",
                      "batch=128 tokens=1 key_heads=32 group=1 d=128 d_v=128 bf16 "
                      "qk_l2norm initial_state output_final_state"}})
          .maps(scan_maps({.base = "bf16"}))
          .run(run_kda, kda_formula<Exact>);
  return table;
}

const OperatorSchema& kda_backward_schema() {
  return gradient_table<run_kda_backward, kda_formula<Traced>>(kda_schema(),
                                                               "22*batch*tokens*key_heads*group*d*d_v", "q");
}

}  // namespace tegula::ops

#include "tegula/ops/gated_delta_rule.hpp"

#include "ops/gated_delta/delta_gradients.hpp"
#include "ops/gated_delta/delta_table.hpp"
#include "ops/gated_delta/factors.hpp"
#include "ops/gated_delta/segments.hpp"
#include "ops/linear/maps.hpp"
#include "ops/linear/recurrent.hpp"
#include "ops/linear/unit_rows.hpp"
#include "ops/schema/beside.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using RuleCall = Bound<GatedDeltaRule>;

// One of equally long stretches of all sequences.
struct Stretch {
  std::int64_t index = 0, count = 1;
  // A tensor over tokens or chunks, [batch, tokens, …].
  TensorRef of(const TensorRef& tensor) const {
    if (count == 1 || tensor.rank() < 2) return tensor;
    const std::int64_t own = tensor.shape[1] / count;
    return tensor.slice(1, index * own, (index + 1) * own);
  }
};

// What the forward has formed, which the gradients need, too.
struct FormedRule {
  const RuleCall& c;
  Launch& launch;
  TensorRef q, k, v, beta, g;
  std::vector<Tensor> owners = {};
  DeltaPass pass = {};
  Tensor vectors = {}, inverse = {}, scores = {}, states = {}, written = {};

  FormedRule(const RuleCall& call, Launch& launches)
      : c(call),
        launch(launches),
        q(token_view(c.call(), "q")),
        k(token_view(c.call(), "k")),
        v(token_view(c.call(), "v")),
        beta(token_view(c.call(), "beta")),
        g(token_view(c.call(), "g")) {
    pass.type = c.type("q");
    pass.d = c.small_dim("d"), pass.d_v = c.small_dim("d_v");
    pass.packed = c.has("cu_seqlens"), pass.block = wide(scan_of(pass)).block;
  }

  // Tensors over tokens, of heads or key heads.
  Shape shape(const char* heads, Shape remainder = {}) const {
    Shape result{pass.packed ? 1 : c.dim("batch"), c.dim("tokens"), c.dim(heads)};
    result.insert(result.end(), remainder.begin(), remainder.end());
    return result;
  }
  Tensor make(const char* heads, Shape remainder, DType type) {
    return launch.scratch(shape(heads, remainder), type);
  }
  Tensor make_states() {
    return launch.scratch(chunk_shape(c.call(), {c.dim("heads"), pass.d_v, pass.d}), pass.type);
  }

  // q and k by their norms, if they are wanted so.
  void normalize() {
    if (!c->qk_l2norm) return;
    for (TensorRef* x : {&q, &k}) {
      owners.push_back(make("key_heads", {pass.d}, pass.type));
      launch(UnitRowsKernel{pass.type, pass.d}, unit_rows_kernel, {{"x", *x}, {"y", owners.back()}});
      *x = owners.back();
    }
  }
  void make_factors() {
    constexpr int rows = chunk_tokens_of_scan;
    vectors = launch.scratch(chunk_shape(c.call(), {c.dim("heads"), DeltaVector::count, rows}), f32);
    inverse = make("heads", {rows}, pass.type), scores = make("heads", {rows}, pass.type);
  }
  // Of some chunks of each sequence.
  void form_factors(const Stretch& stretch = {}) {
    const DeltaKernel kernel{pass.type, c.type("beta"), pass.d, c.has("g"), pass.packed};
    launch(kernel, delta_factors_kernel,
           {{"q", stretch.of(q)},
            {"k", stretch.of(k)},
            {"beta", stretch.of(beta)},
            {"g", stretch.of(g)},
            {"scale", c.real("scale")},
            {"inverse", stretch.of(inverse)},
            {"scores", stretch.of(scores)},
            {"vectors", stretch.of(vectors)}});
  }
  // What gradients read of all chunks.
  void make_kept() { states = make_states(), written = make("heads", {pass.d_v}, pass.type); }
  void run_pass_that_keeps() {
    pass.keep = true, pass.first = c.has("initial_state");
    const std::int64_t number = segments({});
    if (number > 1) return run_by_segments(number, {}, {});
    launch_pass(pass, {}, {}, turned("initial_state"), {});
  }
  // The results of all chunks.
  void run_with_results() {
    const TensorRef out = token_view(c.call(), "out"),
                    final_state = c->output_final_state ? turned("final_state") : TensorRef();
    pass.outputs = true, pass.first = c.has("initial_state"), pass.last = c->output_final_state;
    const std::int64_t number = segments(out), count = number > 1 ? 1 : stretches_of(c.call(), pass);
    make_factors();
    if (count > 1) return run_by_stretches(count, out, final_state);
    form_factors();
    if (number > 1) return run_by_segments(number, out, final_state);
    launch_pass(pass, {}, out, turned("initial_state"), final_state);
  }
  // States of a call are [.., d, d_v], those of passes [.., d_v, d].
  TensorRef turned(const char* name) const {
    const TensorRef state = c.has(name) ? c.call().formed(name) : TensorRef();
    return state.rank() == 4 ? state.transpose(2, 3) : state;
  }

 private:
  std::int64_t segments(const TensorRef& out) const {
    const bool divides = divided(q, 1) && divided(k, 1) && divided(v, 1) && divided(out, 1);
    return divides ? segments_of(c.call(), pass) : 1;
  }
  void launch_pass(const DeltaPass& own, const Stretch& stretch, const TensorRef& out, const TensorRef& start,
                   const TensorRef& end) {
    launch(own, delta_pass_kernel,
           {{"q", stretch.of(q)},
            {"k", stretch.of(k)},
            {"v", stretch.of(v)},
            {"vectors", stretch.of(vectors)},
            {"inverse", stretch.of(inverse)},
            {"scores", stretch.of(scores)},
            {"initial_state", start},
            {"out", stretch.of(out)},
            {"states", stretch.of(states)},
            {"written", stretch.of(written)},
            {"final_state", end}});
  }
  void run_by_stretches(std::int64_t count, const TensorRef& out, const TensorRef& final_state) {
    const Shape states_of_call{sequences_of(c.call()), c.dim("heads"), pass.d_v, pass.d};
    // A stretch begins with one and leaves the other to the next.
    const Tensor between[] = {launch.scratch(states_of_call, f32), launch.scratch(states_of_call, f32)};
    Beside passes(launch);
    for (std::int64_t i = 0; i < count; ++i) {
      const Stretch stretch{i, count};
      const bool is_last = i == count - 1;
      form_factors(stretch);
      DeltaPass own = pass;
      own.first = i > 0 || pass.first, own.last = !is_last || pass.last;
      passes.run([&] {
        launch_pass(own, stretch, out, i > 0 ? between[(i - 1) % 2].ref() : turned("initial_state"),
                    is_last ? final_state : between[i % 2].ref());
      });
    }
  }
  void run_by_segments(std::int64_t number, const TensorRef& out, const TensorRef& final_state) {
    const std::int64_t batch = sequences_of(c.call()), heads = c.dim("heads");
    const Shape states_of_segments{batch, number, heads, pass.d_v, pass.d};
    const Tensor ends = launch.scratch(states_of_segments, f32),
                 starts = launch.scratch(states_of_segments, f32);
    const auto of_segments = [&](const Tensor& ends_of_segments) {
      Shape shape = ends_of_segments.shape();
      shape[1] *= shape[0], shape.erase(shape.begin());
      return ends_of_segments.ref().reshape(shape);
    };
    const auto own = [&](const TensorRef& tensor) { return *divided(tensor, number); };
    DeltaPass segment{pass.type, pass.d, pass.d_v, pass.block};
    segment.segment = segment.last = true;
    const DType of_maps = pass.splits_maps() ? bf16 : f32;
    const Shape maps_of_segments{batch, number, heads, pass.d, pass.d};
    const Tensor map = launch.scratch(maps_of_segments, of_maps),
                 remainder = pass.splits_maps() ? launch.scratch(maps_of_segments, of_maps) : map;
    launch(segment, delta_pass_kernel,
           {{"k", own(k)},
            {"v", own(v)},
            {"vectors", own(vectors)},
            {"inverse", own(inverse)},
            {"final_state", of_segments(ends)},
            {"map", of_segments(map)},
            {"map_rest", of_segments(remainder)}});
    DeltaPass segments = pass;
    segments.block = 16;  // of few heads there are the more blocks
    launch(segments, segment_states_kernel,
           {{"ends", ends},
            {"starts", starts},
            {"map", map},
            {"map_rest", remainder},
            {"initial_state", turned("initial_state")},
            {"final_state", final_state}});
    DeltaPass of_segment = pass;
    of_segment.first = true, of_segment.last = false;
    launch(of_segment, delta_pass_kernel,
           {{"q", own(q)},
            {"k", own(k)},
            {"v", own(v)},
            {"vectors", own(vectors)},
            {"inverse", own(inverse)},
            {"scores", own(scores)},
            {"initial_state", of_segments(starts)},
            {"out", own(out)},
            {"states", own(states)},
            {"written", own(written)}});
  }
};

RecurrentKernel recurrent_of(const RuleCall& c, const FormedRule& formed, bool last) {
  const DeltaPass& pass = formed.pass;
  RecurrentKernel kernel{pass.type, pass.type, pass.d, pass.d_v, 32, c.type_if("g"), {}, c.type("beta")};
  kernel.unit = c->qk_l2norm, kernel.packed = pass.packed;
  kernel.first = c.has("initial_state"), kernel.last = last;
  return kernel;
}

void run_recurrent(const RuleCall& c, Launch& launch, const FormedRule& formed, const TensorRef& out) {
  launch(recurrent_of(c, formed, c->output_final_state), recurrent_kernel,
         {{"q", formed.q},
          {"k", formed.k},
          {"v", formed.v},
          {"beta", formed.beta},
          {"g", formed.g},
          {"scale", c.real("scale")},
          {"out", out}});
}

void run_rule(const RuleCall& c, Launch& launch) {
  const TensorRef out = token_view(c.call(), "out");
  FormedRule formed(c, launch);
  if (c.dim("longest") <= most_recurrent_tokens) return run_recurrent(c, launch, formed, out);
  formed.normalize();
  formed.run_with_results();
}

// The gradients of a call, grid by grid.
class RuleBackward {
 public:
  RuleBackward(const RuleCall& call, Launch& launcher) : c(call), launch(launcher) {}
  void run() {
    f.normalize();
    f.make_factors(), f.form_factors(), f.make_kept();
    Beside states(launch);
    states.run([&] { f.run_pass_that_keeps(); });
    differentiate_pass();
    states.join();
    differentiate_chunks();
    if (unit) differentiate_norms();
  }

 private:
  void differentiate_pass() {
    DeltaPass backwards = f.pass;
    backwards.first = c.has("initial_state"), backwards.last = c.has("dfinal_state");
    launch(backwards, delta_pass_gradients_kernel,
           {{"q", f.q},
            {"k", f.k},
            {"dout", dout},
            {"inverse", f.inverse},
            {"scores", f.scores},
            {"vectors", f.vectors},
            {"dfinal_state", f.turned("dfinal_state")},
            {"solved", solved},
            {"dstates", dstates},
            {"dinitial_state", f.turned("dinitial_state")}});
  }

  void differentiate_chunks() {
    DeltaChunkGradients kernel{f.pass.type, c.type("beta"), unit ? f32 : f.pass.type, f.pass.d, f.pass.d_v};
    kernel.block = f.pass.block, kernel.gated = c.has("g"), kernel.grouped = c.dim("group") > 1;
    kernel.packed = f.pass.packed;
    launch(kernel, delta_chunk_gradients_kernel,
           {{"q", f.q},
            {"k", f.k},
            {"v", f.v},
            {"dout", dout},
            {"written", f.written},
            {"solved", solved},
            {"states", f.states},
            {"dstates", dstates},
            {"vectors", f.vectors},
            {"scale", scale},
            {"dq", unit ? unit_dq.ref() : dq},
            {"dk", unit ? unit_dk.ref() : dk},
            {"dv", token_view(c.call(), "dv")},
            {"dbeta", token_view(c.call(), "dbeta")},
            {"dg", token_view(c.call(), "dg")}});
  }

  void differentiate_norms() {
    const UnitRowsKernel rows{f.pass.type, f.pass.d};
    launch(rows, unit_rows_gradient_kernel, {{"x", token_view(c.call(), "q")}, {"dy", unit_dq}, {"dx", dq}});
    launch(rows, unit_rows_gradient_kernel, {{"x", token_view(c.call(), "k")}, {"dy", unit_dk}, {"dx", dk}});
  }

  const RuleCall& c;
  Launch& launch;
  FormedRule f{c, launch};
  const double scale = c.real("scale");
  const bool unit = c->qk_l2norm;
  const TensorRef dout = token_view(c.call(), "dout"), dq = token_view(c.call(), "dq"),
                  dk = token_view(c.call(), "dk");
  const Tensor dstates = f.make_states(), solved = f.make("heads", {f.pass.d_v}, f.pass.type),
               unit_dq = launch.scratch(unit ? f.shape("key_heads", {f.pass.d}) : Shape{0}, f32),
               unit_dk = launch.scratch(unit_dq.shape(), f32);
};

void run_recurrent_backward(const RuleCall& c, Launch& launch) {
  const FormedRule formed(c, launch);
  launch(recurrent_of(c, formed, c.has("dfinal_state")), recurrent_gradients_kernel,
         {{"q", formed.q},
          {"k", formed.k},
          {"v", formed.v},
          {"beta", formed.beta},
          {"g", formed.g},
          {"scale", c.real("scale")},
          {"dout", token_view(c.call(), "dout")},
          {"dq", token_view(c.call(), "dq")},
          {"dk", token_view(c.call(), "dk")},
          {"dv", token_view(c.call(), "dv")},
          {"dbeta", token_view(c.call(), "dbeta")},
          {"dg", token_view(c.call(), "dg")}});
}

void run_rule_backward(const RuleCall& c, Launch& launch) {
  if (differentiates_by_token(c.call())) return run_recurrent_backward(c, launch);
  RuleBackward(c, launch).run();
}

template <class E>
void rule_formula(const RuleCall& c, E& exact) {
  delta_formula(c, exact, false);
}

Tensor rule_gates(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample&) {
  return Tensor::random_uniform(shape, type, seed, -0.2, 0);
}

}  // namespace

const OperatorSchema& gated_delta_rule_schema() {
  using Op = GatedDeltaRule;
  static const OperatorSchema table =
      Schema<Op>("gated_delta_rule",
                 "linear attention whose state replaces the value of each key, with decays")
          .with(add_delta_inputs<Op>)
          .in(&Op::beta, "beta", token_list("key_heads*group"), floats,
              "share of the stored value that is replaced, 0 to 1")
          .values(shares_of_example)
          .in(&Op::g, "g", token_list("key_heads*group"), is(f32), "logarithms of decays, at most 0")
          .values(rule_gates)
          .with(add_delta_rest<Op>)
          .require("q", "1 <= d & d <= 256", "1 to 256 features", "split the heads")
          .source(
              "Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks; by chunks as Yang et al. 2024, "
              "Parallelizing Linear Transformers with the Delta Rule")
          .gradient("gated_delta_rule_backward")
          .flops("6*batch*tokens*key_heads*group*d*d_v")
          .examples({{"ragged",
                      "batch=2 tokens=20 key_heads=1 group=2 d=10 d_v=9 g initial_state "
                      "output_final_state"},
                     {"l2norm_bf16",
                      "batch=1 tokens=130 key_heads=1 group=1 d=32 d_v=20 bf16 beta:bf16 "
                      "qk_l2norm initial_state output_final_state g"},
                     {"groups_bf16",
                      "batch=1 tokens=130 key_heads=1 group=2 d=64 d_v=128 bf16 g initial_state "
                      "output_final_state"},
                     {"packed_f16",
                      "tokens=150 sequences=3 cu_seqlens key_heads=1 group=2 d=16 d_v=16 f16 g "
                      "initial_state output_final_state"},
                     {"one_token",
                      "batch=2 tokens=1 key_heads=1 group=2 d=20 d_v=40 g qk_l2norm "
                      "initial_state output_final_state"}})
          .measured(
              {{"16_32x128_1x32k_bf16", "batch=1 tokens=32768 key_heads=16 group=2 d=128 d_v=128 bf16 g"},
               {"2_8x128_1x32k_bf16", "batch=1 tokens=32768 key_heads=2 group=4 d=128 d_v=128 bf16 g"},
               {"2_8x128_1x8k_bf16", "batch=1 tokens=8192 key_heads=2 group=4 d=128 d_v=128 bf16 g"},
               {"one_token_128_bf16",
                "batch=128 tokens=1 key_heads=16 group=2 d=128 d_v=128 bf16 g "
                "qk_l2norm initial_state output_final_state"}})
          .maps(scan_maps())
          .run(run_rule, rule_formula<Exact>);
  return table;
}

const OperatorSchema& gated_delta_rule_backward_schema() {
  return gradient_table<run_rule_backward, rule_formula<Traced>>(
      gated_delta_rule_schema(), "18*batch*tokens*key_heads*group*d*d_v", "q");
}

}  // namespace tegula::ops

#include "tegula/ops/gated_delta_rule.hpp"

#include "ops/gated_delta/delta_table.hpp"
#include "ops/gated_delta/factors.hpp"
#include "ops/linear/recurrent.hpp"
#include "ops/linear/segments.hpp"
#include "ops/linear/unit_rows.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using RuleCall = Bound<GatedDeltaRule>;

// What the forward has formed, which the gradients need, too.
struct FormedRule {
  const RuleCall& c;
  Launch& launch;
  TensorRef q, k, v, beta;
  std::vector<Tensor> owners = {};
  ScanKernel scan = {};
  Tensor sums = {}, w = {}, u = {}, inverse = {}, states = {}, v_new = {};

  FormedRule(const RuleCall& call, Launch& launches)
      : c(call),
        launch(launches),
        q(token_view(c.call(), "q")),
        k(token_view(c.call(), "k")),
        v(token_view(c.call(), "v")),
        beta(token_view(c.call(), "beta")) {
    scan.type = scan.result = c.type("q");
    scan.d = c.small_dim("d"), scan.d_v = c.small_dim("d_v");
    scan.gated = c.has("g"), scan.packed = c.has("cu_seqlens"), scan.delta = true;
  }

  // Tensors over tokens, of heads or key heads.
  Shape shape(const char* heads, Shape rest = {}) const {
    Shape result{c.has("cu_seqlens") ? 1 : c.dim("batch"), c.dim("tokens"), c.dim(heads)};
    result.insert(result.end(), rest.begin(), rest.end());
    return result;
  }
  Tensor make(const char* heads, Shape rest, DType type) { return launch.scratch(shape(heads, rest), type); }

  // q and k by their norms, if they are wanted so.
  void normalize() {
    if (!c->qk_l2norm) return;
    for (TensorRef* x : {&q, &k}) {
      owners.push_back(make("key_heads", {scan.d}, scan.type));
      launch(UnitRowsKernel{scan.type, scan.d}, unit_rows_kernel, {{"x", *x}, {"y", owners.back()}});
      *x = owners.back();
    }
  }
  DeltaKernel delta(bool keep) const {
    DeltaKernel kernel{scan.type, c.type("beta"), c->qk_l2norm ? f32 : scan.type, scan.d, scan.d_v};
    kernel.block = wide(scan).block, kernel.gated = scan.gated, kernel.keep = keep;
    kernel.packed = scan.packed;
    return kernel;
  }
  // The states of all chunks, and the last, if it is wanted.
  void form_states(bool keep, bool last) {
    sums = launch.scratch(scan.gated ? shape("heads") : Shape{0}, f32);
    if (scan.gated)
      launch(GateKernel{f32, {}, false, scan.packed}, gate_sums_kernel,
             {{"g", token_view(c.call(), "g")}, {"sums", sums}});
    w = make("heads", {scan.d}, scan.type), u = make("heads", {scan.d_v}, scan.type);
    inverse = launch.scratch(keep ? shape("heads", {scan.rows()}) : Shape{0}, scan.type);
    launch(delta(keep), delta_factors_kernel,
           {{"k", k}, {"v", v}, {"beta", beta}, {"sums", sums}, {"w", w}, {"u", u}, {"inverse", inverse}});
    states = launch.scratch(chunk_shape(c.call(), {c.dim("heads"), scan.d, scan.d_v}), scan.type);
    v_new = make("heads", {scan.d_v}, scan.type);
    ScanKernel kernel = narrow();
    kernel.first = c.has("initial_state"), kernel.last = last;
    if (const std::int64_t parts = divided(k, 1) ? segments_of(c.call(), kernel) : 1; parts > 1)
      return form_by_segments(kernel, parts);
    launch(kernel, scan_states_kernel,
           {{"k", k}, {"v", u}, {"w", w}, {"sums", sums}, {"states", states}, {"v_new", v_new}});
  }
  void form_by_segments(const ScanKernel& whole, std::int64_t parts) {
    const std::int64_t batch = sequences_of(c.call()), heads = c.dim("heads");
    const Tensor ends = launch.scratch({batch, parts, heads, scan.d, scan.d_v + scan.d}, f32),
                 starts = launch.scratch({batch, parts, heads, scan.d, scan.d_v}, f32);
    const TensorRef own_k = *divided(k, parts), own_u = *divided(u, parts), own_w = *divided(w, parts),
                    own_sums = scan.gated ? *divided(sums, parts) : TensorRef();
    const auto of_parts = [&](const Tensor& ends_of_parts) {
      Shape shape = ends_of_parts.shape();
      shape[1] *= shape[0], shape.erase(shape.begin());
      return ends_of_parts.ref().reshape(shape);
    };
    ScanKernel segment = scan;
    segment.d_v += scan.d, segment.segment = segment.last = true;
    launch(of_segments(c.call(), segment, parts), scan_states_kernel,
           {{"k", own_k}, {"v", own_u}, {"w", own_w}, {"sums", own_sums}, {"final_state", of_parts(ends)}});
    launch(whole, segment_states_kernel, {{"ends", ends}, {"starts", starts}});
    ScanKernel part = of_segments(c.call(), scan, parts);
    part.first = true;
    launch(part, scan_states_kernel,
           {{"k", own_k},
            {"v", own_u},
            {"w", own_w},
            {"sums", own_sums},
            {"initial_state", of_parts(starts)},
            {"states", *divided(states, parts)},
            {"v_new", *divided(v_new, parts)}});
  }
  ScanKernel narrow() const { return ops::narrow(scan, sequences_of(c.call()) * c.dim("heads")); }
};

void run_rule(const RuleCall& c, Launch& launch) {
  const double scale = c.real("scale");
  const TensorRef out = token_view(c.call(), "out");
  FormedRule formed(c, launch);
  const ScanKernel& scan = formed.scan;
  if (c.dim("longest") <= most_recurrent_tokens) {
    RecurrentKernel kernel{scan.type, scan.type, scan.d, scan.d_v, 32, c.type_if("g"), {}, c.type("beta")};
    kernel.unit = c->qk_l2norm, kernel.packed = scan.packed;
    kernel.first = c.has("initial_state"), kernel.last = c->output_final_state;
    return launch(kernel, recurrent_kernel,
                  {{"q", formed.q},
                   {"k", formed.k},
                   {"v", formed.v},
                   {"beta", formed.beta},
                   {"g", token_view(c.call(), "g")},
                   {"scale", scale},
                   {"out", out}});
  }
  formed.normalize();
  formed.form_states(false, c->output_final_state);
  ScanKernel outputs = wide(scan);
  outputs.delta = false;
  launch(outputs, scan_outputs_kernel,
         {{"q", formed.q},
          {"k", formed.k},
          {"v", formed.v_new},
          {"states", formed.states},
          {"sums", formed.sums},
          {"scale", scale},
          {"out", out}});
}

// The gradients of a call, grid by grid.
class RuleBackward {
 public:
  RuleBackward(const RuleCall& call, Launch& launcher) : c(call), launch(launcher) {}
  void run() {
    differentiate_states();
    differentiate_chunks();
    differentiate_factors();
    if (unit) differentiate_norms();
  }

 private:
  void differentiate_states() {
    ScanKernel backwards = f.narrow();
    backwards.first = c.has("initial_state"), backwards.last = c.has("dfinal_state");
    launch(backwards, scan_state_gradients_kernel,
           {{"q", f.q},
            {"k", f.k},
            {"dout", dout},
            {"w", f.w},
            {"sums", f.sums},
            {"scale", scale},
            {"dstates", dstates},
            {"dv", du}});
  }

  void differentiate_chunks() {
    ScanKernel gradients = wide(scan);
    gradients.grouped = c.dim("group") > 1, gradients.result = unit ? f32 : scan.type;
    launch(gradients, scan_gradients_kernel,
           {{"q", f.q},
            {"k", f.k},
            {"v", f.v_new},
            {"dout", dout},
            {"states", f.states},
            {"dstates", dstates},
            {"dv", du},
            {"sums", f.sums},
            {"scale", scale},
            {"dq", unit ? unit_dq.ref() : dq},
            {"dk", dk_before},
            {"dw", dw},
            {"dsums", dsums}});
  }

  void differentiate_factors() {
    launch(f.delta(true), delta_factor_gradients_kernel,
           {{"k", f.k},
            {"v", f.v},
            {"beta", f.beta},
            {"inverse", f.inverse},
            {"dw", dw},
            {"du", du},
            {"dk_before", dk_before},
            {"sums", f.sums},
            {"dsums", dsums},
            {"dk", unit ? unit_dk.ref() : dk},
            {"dv", token_view(c.call(), "dv")},
            {"dbeta", token_view(c.call(), "dbeta")}});
    if (scan.gated)
      launch(GateKernel{f32, {}, true, scan.packed}, gate_sums_kernel,
             {{"g", dsums}, {"sums", token_view(c.call(), "dg")}});
  }

  void differentiate_norms() {
    const UnitRowsKernel rows{scan.type, scan.d};
    launch(rows, unit_rows_gradient_kernel, {{"x", token_view(c.call(), "q")}, {"dy", unit_dq}, {"dx", dq}});
    launch(rows, unit_rows_gradient_kernel, {{"x", token_view(c.call(), "k")}, {"dy", unit_dk}, {"dx", dk}});
  }

  static FormedRule formed_for_gradients(const RuleCall& c, Launch& launch) {
    FormedRule formed(c, launch);
    formed.normalize();
    formed.form_states(true, false);
    return formed;
  }

  const RuleCall& c;
  Launch& launch;
  FormedRule f = formed_for_gradients(c, launch);
  const ScanKernel& scan = f.scan;
  const double scale = c.real("scale");
  const bool unit = c->qk_l2norm;
  const TensorRef dout = token_view(c.call(), "dout"), dq = token_view(c.call(), "dq"),
                  dk = token_view(c.call(), "dk");
  const Tensor dstates = launch.scratch(f.states.shape(), scan.type),
               du = f.make("heads", {scan.d_v}, scan.type), dw = f.make("heads", {scan.d}, scan.type),
               dk_before = f.make("key_heads", {scan.d}, f32),
               dsums = launch.scratch(scan.gated ? f.shape("heads") : Shape{0}, f32),
               unit_dq = launch.scratch(unit ? f.shape("key_heads", {scan.d}) : Shape{0}, f32),
               unit_dk = launch.scratch(unit_dq.shape(), f32);
};

void run_rule_backward(const RuleCall& c, Launch& launch) { RuleBackward(c, launch).run(); }

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
          .run(run_rule, rule_formula<Exact>);
  return table;
}

const OperatorSchema& gated_delta_rule_backward_schema() {
  return gradient_table<run_rule_backward, rule_formula<Traced>>(
      gated_delta_rule_schema(), "18*batch*tokens*key_heads*group*d*d_v", "q");
}

}  // namespace tegula::ops

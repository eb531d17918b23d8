// Attention over selected blocks whose kernel sums all branches, and its gradients: those of the sum, by one
// program, and then those of the selected branch and the window.
#include "ops/nsa/backward.hpp"
#include "ops/nsa/gates.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/reference/reference.hpp"
#include "tegula/ops/nsa_combine.hpp"

namespace tegula::ops {

namespace {

template <class Op>
void add_gates(Schema<Op>& table) {
  table.in(&Op::compressed, "compressed", out_dims, same_as("q"), "attention over compressed entries")
      .unit_stride()
      .ordered()
      .in(&Op::gates, "gates", token_dims("queries", query_heads, "branches"), floats, meaning_of_gates)
      .ordered();
}

// Stands behind the options.
template <class Op>
void add_branches(Schema<Op>& table) {
  table.option(
      &Op::keep_branches, "keep_branches",
      "the result and the lse of the selected branch, and of the window, are results, too: gradients "
      "need them");
  require_gates(table, "branches == (window > 0 ? 3 : 2)");
}

// Visits the indices of a tensor's elements.
template <class F>
void each_element(const Shape& shape, const F& visit) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  Shape at(shape.size());
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    for (std::size_t n = shape.size(); n-- > 0; rest /= shape[n]) at[n] = rest % shape[n];
    visit(at);
  }
}

Shape with_last(Shape at, std::int64_t last) {
  at.back() = last;
  return at;
}

std::vector<Example> gated_examples() {
  return {{"small",
           "batch=1 queries=7 keys=7 kv_heads=1 group=2 d=8 d_v=4 selecting=1 entries=3 "
           "block_size=2 branches=2"},
          {"window_bhsd_bf16",
           "batch=2 queries=70 keys=70 kv_heads=2 group=16 d=64 d_v=64 bf16 gates:f32 selecting=2 "
           "entries=4 block_size=16 window=20 branches=3 layout=bhsd"},
          {"packed_f16",
           "sequences=3 queries=90 keys=90 kv_heads=2 group=3 d=16 d_v=24 f16 "
           "selecting=6 entries=3 block_size=8 window=9 branches=3 cu_seqlens_q cu_seqlens_k"},
          {"odd_strides_bf16",
           "batch=1 queries=70 keys=70 kv_heads=2 group=8 d=64 d_v=64 bf16 gates:f32 selecting=2 "
           "entries=3 block_size=16 window=20 branches=3 strides=odd"},
          {"three_warp_groups_bf16",
           "batch=1 queries=41 keys=150 kv_heads=1 group=16 d=64 d_v=64 bf16 selecting=1 entries=2 "
           "block_size=64 window=20 branches=3 tile_queries=12"}};
}

std::vector<Example> gated_measured() {
  return {{"8192_bf16",
           "batch=1 queries=8192 keys=8192 kv_heads=4 group=16 d=128 d_v=128 bf16 selecting=4 "
           "entries=16 window=512 branches=3"},
          {"65536_bf16",
           "batch=1 queries=65536 keys=65536 kv_heads=4 group=16 d=128 d_v=128 bf16 selecting=4 "
           "entries=16 window=512 branches=3"}};
}

// The same calls, which keep branches.
std::vector<Example> keeping(std::vector<Example> examples) {
  for (Example& example : examples) example.name += "_kept", example.text += " keep_branches";
  return examples;
}

// The rows of a tensor such as out, in the form of the program.
TensorRef rows_of(const Bound<NsaGated>& c, const TensorRef& tensor) {
  const TensorRef rows = tensor.rank() == 4 ? as_bshd(tensor, c->layout) : tensor;
  return split_heads(rows, rows.rank() - 2, c.dim("group"));
}

// A result that the caller keeps, or memory of the call: what a call allocates by itself, no graph can
// capture.
Tensor kept_or_scratch(const Bound<NsaGated>& c, const char* name, const Shape& shape, DType type,
                       Launch& launch) {
  return c.has(name) ? c.call().output(name) : launch.scratch(shape, type);
}
Tensor branch_of(const Bound<NsaGated>& c, const char* name, Launch& launch) {
  return kept_or_scratch(c, name, c["out"].shape, c["out"].dtype, launch);
}
Tensor lse_of(const Bound<NsaGated>& c, const char* name, Launch& launch) {
  Shape shape{c.dim("kv_heads") * c.dim("group"), c.dim("queries")};
  if (!c.has("cu_seqlens_q")) shape.insert(shape.begin(), c.dim("batch"));
  return kept_or_scratch(c, name, shape, f32, launch);
}

// Where few tokens share a block and a pass over keys finishes rows of the result, the sum is a kernel of its
// own.
void run_apart(const Bound<NsaGated>& c, Launch& launch) {
  const Tensor selected = branch_of(c, "selected", launch), lse = lse_of(c, "lse", launch);
  NsaSelectedOptions options = *c;
  options.out = selected, options.lse = lse;
  NsaCombine sum{.out = c["out"], .target = c->target};
  Tensor near, near_lse;
  if (c->window > 0) {
    near = branch_of(c, "window_out", launch), near_lse = lse_of(c, "window_lse", launch);
    options.window_out = near, options.window_lse = near_lse;
    sum.window = near;
  }
  if (!launch.runs()) return;
  nsa_selected_attention(c["q"], c["k"], c["v"], c["block_indices"], options);
  nsa_combine(c["compressed"], selected, c["gates"], sum);
}

// The window's result.
Tensor window_of(const Bound<NsaGated>& c, Launch& launch) {
  const Tensor near = branch_of(c, "window_out", launch), lse = lse_of(c, "window_lse", launch);
  AttentionOptions options = window_options(*c);
  options.out = near, options.lse = lse;
  if (launch.runs()) attention(c["q"], c["k"], c["v"], options);
  return near;
}

void run(const Bound<NsaGated>& c, Launch& launch) {
  NsaCall call = nsa_call(c.call(), *c, c.on_gpu());
  if (call.kernel.divides()) return run_apart(c, launch);
  call.kernel.branches = c->window > 0 ? 3 : 2;
  call.kernel.gates = c.type("gates");
  call.kernel.keeps = c->keep_branches;
  const Tensor near = c->window > 0 ? window_of(c, launch) : Tensor();
  launch(call.kernel, nsa_kernel,
         {{"choice", call.choice},
          {"counts", call.counts},
          {"window", c->window > 0 ? rows_of(c, near.ref()) : TensorRef()},
          {"scale", call.scale},
          {"q_begin", call.q_begin},
          {"k_begin", call.k_begin},
          {"longest", call.longest}});
}

void formula(const Bound<NsaGated>& c, Exact& exact) {
  const NsaSelectedResult fine =
      reference::nsa_selected_attention(c["q"], c["k"], c["v"], c["block_indices"], *c, exact.steps());
  exact.set("out", sum_by_gates({c["compressed"], fine.out, fine.window_out}, c["gates"]));
  if (!c->keep_branches) return;
  exact.set("selected", fine.out);
  exact.set("lse", fine.lse);
  if (c->window == 0) return;
  exact.set("window_out", fine.window_out);
  exact.set("window_lse", fine.window_lse);
}

double gated_operations(const Bound<NsaGated>& c) {
  return 2 * selected_pairs(c.call(), *c) * static_cast<double>(c.dim("d") + c.dim("d_v"));
}

// Without and with branches that are kept.
std::vector<Example> examples() {
  std::vector<Example> all = gated_examples();
  const std::vector<Example> more = keeping(all);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

const OperatorSchema& nsa_gated_attention_schema() {
  using Op = NsaGated;
  static const OperatorSchema table =
      Schema<Op>("nsa_gated_attention",
                 "attention over selected blocks, and a window, summed with the compressed branch by gates")
          .with(add_heads<Op>)
          .with(add_block_indices<Op>)
          .with(add_gates<Op>)
          .with(add_selection<Op>)
          .with(add_branches<Op>)
          .out(&Op::out, "out", out_dims, same_as("q"), sum_of_branches)
          .unit_stride()
          .ordered()
          .out(&Op::selected, "selected", out_dims, same_as("q"), "the selected branch")
          .unit_stride()
          .ordered()
          .when("keep_branches")
          .out(&Op::lse, "lse", lse_dims, is(f32), "its lse, as that of nsa_selected_attention")
          .when("keep_branches")
          .out(&Op::window_out, "window_out", out_dims, same_as("q"), "the branch of the window")
          .unit_stride()
          .ordered()
          .when("keep_branches & window > 0")
          .out(&Op::window_lse, "window_lse", lse_dims, is(f32), "its lse")
          .when("keep_branches & window > 0")
          .gradient("nsa_gated_attention_backward")
          .source("Yuan et al. 2025, Native Sparse Attention: the gated sum of its branches")
          .flops(fmt::format("2*{}*(d + d_v)", most_pairs_of_selection))
          .counted(gated_operations)
          .examples(examples())
          .measured(gated_measured())
          .run(on_moved_rows<Op, run>, formula);
  return table;
}

namespace {

// Gradients of the branches' results, in rows.
struct BranchGradients {
  Tensor selected, window;
};

BranchGradients run_combine_backward(const Bound<NsaGatedBackward>& c, Launch& launch) {
  const bool window = c->window > 0;
  const TensorRef& dout = c["dout"];
  const std::int64_t features = c.dim("d_v");
  const auto scratch = [&] { return launch.scratch({nelements(dout) / features, features}, dout.dtype); };
  const BranchGradients result{scratch(), window ? scratch() : Tensor()};
  const auto rows = [&](const char* name) {
    return c.has(name) ? c.rows(name, dout.rank() - 1) : TensorRef();
  };
  CombineInstance instance = combine_instance(c.type("dout"), c.type("gates"), window, c.small_dim("d_v"));
  instance.more_selected = c.has("dselected"), instance.more_window = c.has("dwindow_out");
  launch(instance, combine_backward,
         {{"compressed", rows("compressed")},
          {"selected", rows("selected")},
          {"window", rows("window_out")},
          {"dcompressed", rows("dcompressed")},
          {"dselected", result.selected},
          {"dwindow", result.window},
          {"gates", rows("gates")},
          {"dgates", rows("dgates")},
          {"dout", rows("dout")},
          {"more_selected", rows("dselected")},
          {"more_window", rows("dwindow_out")}});
  return result;
}

void run_gated_backward(const Bound<NsaGatedBackward>& c, Launch& launch) {
  const BranchGradients branches = run_combine_backward(c, launch);
  const auto as_dout = [&](const Tensor& rows) { return rows.ref().reshape(c["dout"].shape); };
  NsaSelectedBackward selected;
  static_cast<NsaSelectedOptions&>(selected) = *c;
  selected.dlse = c->dlse, selected.sel_scale_gradient = c->sel_scale_gradient;
  if (c->window > 0) {
    selected.dwindow_out = as_dout(branches.window), selected.dwindow_lse = c->dwindow_lse;
    selected.window_out = c->window_out, selected.window_lse = c->window_lse;
  }
  const NsaBackwardCall call =
      nsa_backward_call(c.call(), selected, as_dout(branches.selected), c["selected"]);
  run_nsa_backward(call, launch);
}

// The gradient of each branch's result, which is rounded where a pass reads it, and of its gates into
// `dgates`.
std::vector<Tensor> gradients_of_branches(const Bound<NsaGatedBackward>& c, const Tensor& dgates,
                                          const Exact& exact) {
  const TensorRef branches[] = {c["compressed"], c["selected"], c.given("window_out")},
                  more[] = {{}, c.given("dselected"), c.given("dwindow_out")};
  std::vector<Tensor> result;
  for (int branch = 0; branch < c.dim("branches"); ++branch) {
    const bool adds = c.has(branch == 1 ? "dselected" : "dwindow_out") && branch > 0;
    result.push_back(Tensor::zeros(c["dout"].shape, f64));
    each_element(c["dout"].shape, [&](const Shape& at) {
      const Shape gate = with_last(at, branch);
      const double weight = weight_of_gate(c["gates"].get(gate)), given = c["dout"].get(at),
                   share = weight * given + (adds ? more[branch].get(at) : 0);
      result.back().set(at, branch == 0 ? share : exact.rounded(share));
      dgates.ref().set(gate, dgates.get(gate) + given * branches[branch].get(at) * weight * (1 - weight));
    });
  }
  return result;
}

void formula_of_gated_gradients(const Bound<NsaGatedBackward>& c, Exact& exact) {
  const Tensor dgates = Tensor::zeros(c["gates"].shape, f64);
  const std::vector<Tensor> shares = gradients_of_branches(c, dgates, exact);
  NsaSelectedBackwardOptions gradients{.dlse = c->dlse, .sel_scale_gradient = c->sel_scale_gradient};
  if (c->window > 0) gradients.dwindow_out = shares[2].ref(), gradients.dwindow_lse = c->dwindow_lse;
  const NsaSelectedGradients made = reference::nsa_selected_attention_backward(
      shares[1], c["q"], c["k"], c["v"], c["block_indices"], *c, gradients, exact.steps());
  exact.set("dq", made.dq);
  exact.set("dk", made.dk);
  exact.set("dv", made.dv);
  exact.set("dcompressed", shares[0]);
  exact.set("dgates", dgates);
  if (c.has("dsel_scale")) exact.set("dsel_scale", made.dsel_scale);
}

double gated_gradient_operations(const Bound<NsaGatedBackward>& c) {
  return 2 * selected_pairs(c.call(), *c) * static_cast<double>(3 * c.dim("d") + 2 * c.dim("d_v"));
}

// Calls of the forward as those of gradients, which take what it kept.
std::vector<Example> with_kept(const std::vector<Example>& of_forward) {
  std::vector<Example> all = keeping(of_forward);
  for (Example& example : all)
    if (example.text.find("window=") != std::string::npos) example.text += " window_out window_lse";
  return all;
}

// Of the sum alone; and of branches that something else depends on, and of a scale.
std::vector<Example> examples_of_gated_gradients() {
  std::vector<Example> all = with_kept(gated_examples());
  const std::size_t plain = all.size();
  for (std::size_t i = 0; i < plain; ++i) {
    Example more = all[i];
    more.name += "_and_more", more.text += " dselected dlse sel_scale_gradient";
    if (more.text.find("window=") != std::string::npos) more.text += " dwindow_out dwindow_lse";
    all.push_back(more);
  }
  return all;
}

// What the forward gives for it.
void add_kept_branches(Schema<NsaGatedBackward>& table) {
  using Op = NsaGatedBackward;
  table.in(&Op::selected, "selected", out_dims, same_as("q"), "the selected branch, of nsa_gated_attention")
      .unit_stride()
      .ordered()
      .in(&Op::lse, "lse", lse_dims, is(f32), "its lse")
      .in(&Op::dselected, "dselected", out_dims, same_as("q"),
          "gradient of the selected branch, where something else depends on it")
      .unit_stride()
      .ordered()
      .in(&Op::dlse, "dlse", lse_dims, is(f32), "gradient of its lse; ignored where lse is -inf")
      .in(&Op::window_out, "window_out", out_dims, same_as("q"), "the branch of the window")
      .unit_stride()
      .ordered()
      .in(&Op::window_lse, "window_lse", lse_dims, is(f32), "its lse")
      .in(&Op::dwindow_out, "dwindow_out", out_dims, same_as("q"), "gradient of that branch, likewise")
      .unit_stride()
      .ordered()
      .in(&Op::dwindow_lse, "dwindow_lse", lse_dims, is(f32), "gradient of its lse");
}

void add_rules_of_branches(Schema<NsaGatedBackward>& table) {
  const char* of_forward = "give what nsa_gated_attention returned with keep_branches";
  table.require("keep_branches", "keep_branches", "true", "call nsa_gated_attention with keep_branches")
      .require("window_out", "window > 0 ? window_out & window_lse : 1", "window_out and window_lse",
               of_forward);
  const auto none_without_window = [&](const char* name, const char* condition) {
    table.require(name, condition, "none, as the options have no window",
                  "leave it out, or give the window of the forward");
  };
  none_without_window("window_out", "window > 0 ? 1 : window_out <= 0");
  none_without_window("window_lse", "window > 0 ? 1 : window_lse <= 0");
  none_without_window("dwindow_out", "window > 0 ? 1 : dwindow_out <= 0");
  none_without_window("dwindow_lse", "window > 0 ? 1 : dwindow_lse <= 0");
}

}  // namespace

const OperatorSchema& nsa_gated_attention_backward_schema() {
  using Op = NsaGatedBackward;
  static const OperatorSchema table =
      Schema<Op>("nsa_gated_attention_backward",
                 "gradients of nsa_gated_attention: of q, k, v, the compressed branch and the gates")
          .with(add_gradient_of_out<Op>)
          .with(add_heads<Op>)
          .with(add_block_indices<Op>)
          .with(add_gates<Op>)
          .with(add_kept_branches)
          .with(add_selection<Op>)
          .with(add_branches<Op>)
          .option(&Op::sel_scale_gradient, "sel_scale_gradient",
                  "also the gradient of sel_scale, which need not be given")
          .with(add_rules_of_branches)
          .with(add_room_for_entries<Op>)
          .with(add_gradients<Op>)
          .out(&Op::dcompressed, "dcompressed", out_dims, same_as("q"), "gradient of compressed")
          .unit_stride()
          .ordered()
          .out(&Op::dgates, "dgates", token_dims("queries", query_heads, "branches"), same_as("gates"),
               "gradient of the gates")
          .unit_stride()
          .ordered()
          .with(add_gradient_of_scale<Op>)
          .source("Yuan et al. 2025, Native Sparse Attention: the gated sum of its branches")
          .no_gradient("those of gradients are not implemented")
          .flops(fmt::format("2*{}*(3*d + 2*d_v)", most_pairs_of_selection))
          .counted(gated_gradient_operations)
          .examples(examples_of_gated_gradients())
          .measured(with_kept(gated_measured()))
          .run(on_moved_rows<Op, run_gated_backward>, formula_of_gated_gradients);
  return table;
}

}  // namespace tegula::ops

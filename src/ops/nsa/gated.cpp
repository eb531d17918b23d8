// Attention over selected blocks whose kernel sums all branches.
#include "ops/nsa/gated_table.hpp"
#include "ops/reference/reference.hpp"
#include "tegula/ops/nsa_combine.hpp"

namespace tegula::ops {

namespace {

// The rows of a tensor such as out, in the form of the program.
TensorRef rows_of(const Bound<NsaGated>& c, const TensorRef& tensor) {
  const TensorRef rows = tensor.rank() == 4 ? as_bshd(tensor, c->layout) : tensor;
  return split_heads(rows, rows.rank() - 2, c.dim("group"));
}

std::optional<TensorRef> given_output(const Bound<NsaGated>& c, const char* name) {
  return c.has(name) ? std::optional(c[name]) : std::nullopt;
}

// Where few tokens share a block and a pass over keys finishes rows of the result, the sum is a kernel of its
// own.
void run_apart(const Bound<NsaGated>& c, Launch& launch) {
  if (!launch.runs()) return;
  NsaSelectedOptions options = *c;
  options.out = given_output(c, "selected"), options.lse = given_output(c, "lse");
  options.window_out = given_output(c, "window_out"), options.window_lse = given_output(c, "window_lse");
  const NsaSelectedResult fine = nsa_selected_attention(c["q"], c["k"], c["v"], c["block_indices"], options);
  NsaCombine sum{.out = c["out"], .target = c->target};
  if (c->window > 0) sum.window = fine.window_out;
  nsa_combine(c["compressed"], fine.out, c["gates"], sum);
}

// The window's result, in memory of the call unless it is kept.
Tensor window_of(const Bound<NsaGated>& c, Launch& launch) {
  const Tensor near =
      c->keep_branches ? c.call().output("window_out") : launch.scratch(c["out"].shape, c["out"].dtype);
  AttentionOptions options = window_options(*c);
  options.out = near, options.lse = given_output(c, "window_lse");
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
  tegula::Tensor result = tegula::Tensor::zeros(fine.out.shape(), fine.out.dtype());
  const TensorRef gates = c["gates"], branches[] = {c["compressed"], fine.out, fine.window_out};
  each_element(result.shape(), [&](const Shape& at) {
    double sum = 0;
    for (int branch = 0; branch < c.dim("branches"); ++branch)
      sum += branches[branch].get(at) * sigmoid_of(gates.get(with_last(at, branch)));
    result.set(at, sum);
  });
  exact.set("out", result);
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
          .out(&Op::out, "out", out_dims, same_as("q"), "the sum of sigmoid(gate) * branch")
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
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops

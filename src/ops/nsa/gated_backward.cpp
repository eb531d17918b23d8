// Gradients of attention over selected blocks whose kernel sums all branches.
//
// The forward keeps no branch. The selected one and the window are computed anew, from which follow the
// gradients of the sum, and from those the gradients of each branch.
#include <cmath>

#include "ops/nsa/gated_table.hpp"
#include "ops/reference/reference.hpp"
#include "ops/schema/gradient.hpp"
#include "tegula/ops/nsa_combine.hpp"

namespace tegula::ops {

const OperatorSchema& nsa_combine_backward_schema();

namespace {

// Where the table of nsa_combine_backward has the gradients that are results here, too.
constexpr std::size_t compressed_place = 0, gates_place = 2;

void run_gated_backward(const Bound<NsaGatedBackward>& c, Launch& launch) {
  if (!launch.runs()) return;
  NsaSelectedOptions options = *c;
  options.out = options.lse = options.window_out = options.window_lse = {};
  const NsaSelectedResult fine = nsa_selected_attention(c["q"], c["k"], c["v"], c["block_indices"], options);
  Gradient<NsaCombine> sum{{.target = c->target}};
  if (c->window > 0) sum.window = fine.window_out;
  sum.made[compressed_place] = c["dcompressed"], sum.made[gates_place] = c["dgates"];
  const auto shares = results_of<NsaCombineGradients>(nsa_combine_backward_schema(), sum,
                                                      {c["dout"], c["compressed"], fine.out, c["gates"]});
  NsaSelectedBackwardOptions gradients{
      .sel_scale_gradient = c->sel_scale_gradient, .dq = c["dq"], .dk = c["dk"], .dv = c["dv"]};
  if (c->sel_scale_gradient) gradients.dsel_scale = c["dsel_scale"];
  if (c->window > 0) {
    gradients.dwindow_out = shares.dwindow;
    gradients.window_out = fine.window_out, gradients.window_lse = fine.window_lse;
  }
  nsa_selected_attention_backward(shares.dselected, c["q"], c["k"], c["v"], c["block_indices"], fine.out,
                                  fine.lse, options, gradients);
}

// Visits the elements of a tensor of this shape.
template <class F>
void each_place(const Shape& shape, const F& visit) {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  for (std::int64_t i = 0; i < count; ++i) {
    Shape at(shape.size());
    std::int64_t rest = i;
    for (std::size_t n = shape.size(); n-- > 0; rest /= shape[n]) at[n] = rest % shape[n];
    visit(at);
  }
}

// The gradient of each branch's result, and of its gates into `dgates`.
std::vector<Tensor> gradients_of_branches(const Bound<NsaGatedBackward>& c, const NsaSelectedResult& fine,
                                          const Tensor& dgates, Exact& exact) {
  const TensorRef branches[] = {c["compressed"], fine.out, fine.window_out};
  std::vector<Tensor> result;
  for (int branch = 0; branch < c.dim("branches"); ++branch) {
    result.push_back(Tensor::zeros(c["dout"].shape, f64));
    each_place(c["dout"].shape, [&](const Shape& at) {
      Shape gate = at;
      gate.back() = branch;
      const double weight = 1 / (1 + std::exp(-c["gates"].get(gate))), given = c["dout"].get(at);
      result.back().set(at, branch == 0 ? weight * given : exact.rounded(weight * given));
      dgates.ref().set(gate, dgates.get(gate) + given * branches[branch].get(at) * weight * (1 - weight));
    });
  }
  return result;
}

void formula_of_gated_gradients(const Bound<NsaGatedBackward>& c, Exact& exact) {
  const NsaSelectedResult fine =
      reference::nsa_selected_attention(c["q"], c["k"], c["v"], c["block_indices"], *c, exact.steps());
  const Tensor dgates = Tensor::zeros(c["gates"].shape, f64);
  const std::vector<Tensor> shares = gradients_of_branches(c, fine, dgates, exact);
  NsaSelectedBackwardOptions gradients{.sel_scale_gradient = c->sel_scale_gradient};
  if (c->window > 0) gradients.dwindow_out = shares[2];
  const NsaSelectedGradients made = reference::nsa_selected_attention_backward(
      shares[1], c["q"], c["k"], c["v"], c["block_indices"], *c, gradients, exact.steps());
  exact.set("dq", made.dq);
  exact.set("dk", made.dk);
  exact.set("dv", made.dv);
  exact.set("dcompressed", shares[0]);
  exact.set("dgates", dgates);
  if (c.has("dsel_scale")) exact.set("dsel_scale", made.dsel_scale);
}

// The forward's products of the selected pairs, and those of its gradients.
double gated_gradient_operations(const Bound<NsaGatedBackward>& c) {
  return 2 * selected_pairs(c.call(), *c) * static_cast<double>(4 * c.dim("d") + 3 * c.dim("d_v"));
}

std::vector<Example> examples_of_gated_gradients() {
  std::vector<Example> all = gated_examples();
  all.front().text += " sel_scale_gradient";
  return all;
}

}  // namespace

const OperatorSchema& nsa_gated_attention_backward_schema() {
  using Op = NsaGatedBackward;
  static const OperatorSchema table =
      Schema<Op>("nsa_gated_attention_backward",
                 "gradients of nsa_gated_attention, whose branches are computed anew")
          .with(add_gradient_of_out<Op>)
          .with(add_heads<Op>)
          .with(add_block_indices<Op>)
          .with(add_gates<Op>)
          .with(add_selection<Op>)
          .option(&Op::sel_scale_gradient, "sel_scale_gradient",
                  "also the gradient of sel_scale, which need not be given")
          .with(add_branches<Op>)
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
          .flops(fmt::format("2*{}*(4*d + 3*d_v)", most_pairs_of_selection))
          .counted(gated_gradient_operations)
          .examples(examples_of_gated_gradients())
          .measured(gated_measured())
          .run(run_gated_backward, formula_of_gated_gradients);
  return table;
}

}  // namespace tegula::ops

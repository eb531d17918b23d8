// The gradients of attention over selected blocks: their table and formula.
#include "ops/nsa/backward_call.hpp"
#include "ops/nsa/maps.hpp"
#include "ops/nsa/table.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

namespace {

void run(const Bound<NsaSelectedBackward>& c, Launch& launch) {
  run_nsa_backward(nsa_backward_call(c), launch);
}

// The results of the forward are formed anew.
void formula(const Bound<NsaSelectedBackward>& c, Exact& exact) {
  const NsaSelectedGradients gradients = reference::nsa_selected_attention_backward(
      c["dout"], c["q"], c["k"], c["v"], c["block_indices"], *c, *c, exact.steps());
  exact.set("dq", gradients.dq);
  exact.set("dk", gradients.dk);
  exact.set("dv", gradients.dv);
  if (c.has("dsel_scale")) exact.set("dsel_scale", gradients.dsel_scale);
}

// Gradients of scores, dq, dk and dv for every pair that the forward has, at least.
double backward_operations(const Bound<NsaSelectedBackward>& c) {
  return 2 * selected_pairs(c.call(), *c) * static_cast<double>(3 * c.dim("d") + 2 * c.dim("d_v"));
}

// All gradients there are; then nothing but dq, dk and dv, which GPUs find in a way of their own.
std::vector<Example> backward_examples() {
  std::vector<Example> all = nsa_examples();
  const Example plain = all.back();
  for (Example& example : all) {
    example.text += " dlse sel_scale_gradient";
    if (example.text.find("window=") != std::string::npos)
      example.text += " dwindow_out window_out window_lse";
  }
  all.push_back({plain.name + "_plain", plain.text});
  return all;
}

}  // namespace

const OperatorSchema& nsa_selected_attention_backward_schema() {
  using Op = NsaSelectedBackward;
  const char* of_forward = "give the window and the results of the forward";
  static const OperatorSchema table =
      Schema<Op>("nsa_selected_attention_backward",
                 "gradients of nsa_selected_attention, of its window too, and of a scale of every selection")
          .with(add_gradient_of_out<Op>)
          .with(add_heads<Op>)
          .with(add_block_indices<Op>)
          .with(add_results_of<Op>("the result of nsa_selected_attention"))
          .in(&Op::dwindow_out, "dwindow_out", out_dims, same_as("q"),
              "gradient of window_out; if omitted, the window contributes nothing to the gradients")
          .unit_stride()
          .ordered()
          .in(&Op::window_out, "window_out", out_dims, same_as("q"), "the window's result")
          .unit_stride()
          .ordered()
          .in(&Op::window_lse, "window_lse", lse_dims, is(f32), "the lse of that result")
          .in(&Op::dwindow_lse, "dwindow_lse", lse_dims, is(f32), "gradient of window_lse")
          .with(add_selection<Op>)
          .option(&Op::sel_scale_gradient, "sel_scale_gradient",
                  "also the gradient of sel_scale, which need not be given")
          .require("dwindow_out", "dwindow_out ? window > 0 : 1", "a window in the options", of_forward)
          .require("dwindow_out", "dwindow_out ? window_out & window_lse : 1",
                   "window_out and window_lse with it", of_forward)
          .require("dwindow_lse", "dwindow_lse <= dwindow_out", "dwindow_out with it",
                   "give dwindow_out, of zeros if necessary")
          .with(add_room_for_entries<Op>)
          .with(add_gradients<Op>)
          .with(add_gradient_of_scale<Op>)
          .source(
              "Dao 2023, FlashAttention-2, over lists that are inverted on the device; the gradient of "
              "factors as in native-sparse-attention-pytorch (Wang 2025)")
          .no_gradient("those of gradients are not implemented")
          .flops(fmt::format("2*{}*(3*d + 2*d_v)", most_pairs_of_selection))
          .counted(backward_operations)
          .examples(backward_examples())
          .measured(nsa_measured())
          .maps(nsa_maps())
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops

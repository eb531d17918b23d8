#include "arguments.hpp"
#include "operators.hpp"

namespace tegula::python {

namespace {

ops::AttentionBackwardOptions backward_options(Call& call, nb::handle dlse, nb::handle dq, nb::handle dk,
                                               nb::handle dv) {
  ops::AttentionBackwardOptions options;
  options.dlse = call.optional_input("dlse", dlse);
  options.dq = call.output("dq", dq), options.dk = call.output("dk", dk);
  options.dv = call.output("dv", dv);
  return options;
}

nb::tuple attention_backward(nb::object dout, nb::object q, nb::object k, nb::object v, nb::object out,
                             nb::object lse, nb::object dlse, nb::object dq, nb::object dk, nb::object dv,
                             nb::object dsinks, std::string layout, std::optional<float> scale, bool causal,
                             std::int64_t left, std::int64_t right, float softcap, nb::object sinks,
                             nb::object cu_seqlens_q, nb::object cu_seqlens_k, bool deterministic,
                             std::string target) {
  Call call;
  const TensorRef dout_ref = call.input("dout", dout), q_ref = call.input("q", q), k_ref = call.input("k", k),
                  v_ref = call.input("v", v), out_ref = call.input("out", out),
                  lse_ref = call.input("lse", lse);
  const ops::AttentionOptions options = dense_options(
      call, {layout, scale, causal, left, right, softcap, sinks, cu_seqlens_q, cu_seqlens_k, target});
  ops::AttentionBackwardOptions gradients = backward_options(call, dlse, dq, dk, dv);
  gradients.deterministic = deterministic;
  gradients.dsinks = call.output("dsinks", dsinks);
  const auto results = call.run([&] {
    return ops::attention_backward(dout_ref, q_ref, k_ref, v_ref, out_ref, lse_ref, options, gradients);
  });
  return nb::make_tuple(call.result(results.dq, dq), call.result(results.dk, dk), call.result(results.dv, dv),
                        sinks.is_none() ? nb::none() : call.result(results.dsinks, dsinks));
}

nb::tuple block_sparse_backward(nb::object dout, nb::object q, nb::object k, nb::object v, nb::object out,
                                nb::object lse, nb::object dlse, nb::object dq, nb::object dk, nb::object dv,
                                int q_block, int k_block, nb::object indices, nb::object counts,
                                nb::object mask, std::string layout, bool causal, std::optional<float> scale,
                                float softcap, bool deterministic, std::string target) {
  Call call;
  const TensorRef dout_ref = call.input("dout", dout), q_ref = call.input("q", q), k_ref = call.input("k", k),
                  v_ref = call.input("v", v), out_ref = call.input("out", out),
                  lse_ref = call.input("lse", lse);
  const ops::BlockSparseOptions options = block_sparse_options(
      call, {layout, q_block, k_block, indices, counts, mask, causal, scale, softcap, false, target});
  ops::AttentionBackwardOptions gradients = backward_options(call, dlse, dq, dk, dv);
  gradients.deterministic = deterministic;
  const auto results = call.run([&] {
    return ops::block_sparse_attention_backward(dout_ref, q_ref, k_ref, v_ref, out_ref, lse_ref, options,
                                                gradients);
  });
  return nb::make_tuple(call.result(results.dq, dq), call.result(results.dk, dk),
                        call.result(results.dv, dv));
}

nb::tuple nsa_selected_backward(nb::object dout, nb::object q, nb::object k, nb::object v,
                                nb::object block_indices, nb::object out, nb::object lse, nb::object dlse,
                                nb::object window_dout, nb::object window_out, nb::object window_lse,
                                nb::object window_dlse, bool scale_gradient, nb::object dq, nb::object dk,
                                nb::object dv, nb::object dscale, nb::object block_counts, int block_size,
                                std::string layout, bool causal, bool diagonal, bool repeats,
                                std::int64_t window, std::optional<float> scale, nb::object cu_seqlens_q,
                                nb::object cu_seqlens_k, std::string target) {
  Call call;
  const TensorRef dout_ref = call.input("dout", dout), q_ref = call.input("q", q), k_ref = call.input("k", k),
                  v_ref = call.input("v", v), indices_ref = call.input("block_indices", block_indices),
                  out_ref = call.input("out", out), lse_ref = call.input("lse", lse);
  const ops::NsaSelectedOptions options =
      selected_options(call, {block_counts, block_size, layout, causal, diagonal, repeats, window, scale,
                              cu_seqlens_q, cu_seqlens_k, false, target});
  ops::NsaSelectedBackwardOptions gradients;
  gradients.dlse = call.optional_input("dlse", dlse);
  gradients.window_dout = call.optional_input("window_dout", window_dout);
  gradients.window_out = call.optional_input("window_out", window_out);
  gradients.window_lse = call.optional_input("window_lse", window_lse);
  gradients.window_dlse = call.optional_input("window_dlse", window_dlse);
  gradients.scale_gradient = scale_gradient;
  gradients.dq = call.output("dq", dq), gradients.dk = call.output("dk", dk);
  gradients.dv = call.output("dv", dv), gradients.dscale = call.output("dscale", dscale);
  const auto results = call.run([&] {
    return ops::nsa_selected_attention_backward(dout_ref, q_ref, k_ref, v_ref, indices_ref, out_ref, lse_ref,
                                                options, gradients);
  });
  return nb::make_tuple(call.result(results.dq, dq), call.result(results.dk, dk), call.result(results.dv, dv),
                        scale_gradient ? call.result(results.dscale, dscale) : nb::none());
}

}  // namespace

void define_backward(nb::module_& module) {
  module.def("attention_backward", attention_backward, nb::arg("dout"), nb::arg("q"), nb::arg("k"),
             nb::arg("v"), nb::arg("out"), nb::arg("lse"), nb::arg("dlse").none(), nb::arg("dq").none(),
             nb::arg("dk").none(), nb::arg("dv").none(), nb::arg("dsinks").none(), nb::arg("layout"),
             nb::arg("scale").none(), nb::arg("causal"), nb::arg("left"), nb::arg("right"),
             nb::arg("softcap"), nb::arg("sinks").none(), nb::arg("cu_seqlens_q").none(),
             nb::arg("cu_seqlens_k").none(), nb::arg("deterministic"), nb::arg("target"));
  module.def("block_sparse_attn_backward", block_sparse_backward, nb::arg("dout"), nb::arg("q"), nb::arg("k"),
             nb::arg("v"), nb::arg("out"), nb::arg("lse"), nb::arg("dlse").none(), nb::arg("dq").none(),
             nb::arg("dk").none(), nb::arg("dv").none(), nb::arg("q_block_size"), nb::arg("k_block_size"),
             nb::arg("topk_indices").none(), nb::arg("counts").none(), nb::arg("mask").none(),
             nb::arg("layout"), nb::arg("causal"), nb::arg("scale").none(), nb::arg("softcap"),
             nb::arg("deterministic"), nb::arg("target"));
  module.def("nsa_selected_attention_backward", nsa_selected_backward, nb::arg("dout"), nb::arg("q"),
             nb::arg("k"), nb::arg("v"), nb::arg("block_indices"), nb::arg("out"), nb::arg("lse"),
             nb::arg("dlse").none(), nb::arg("window_dout").none(), nb::arg("window_out").none(),
             nb::arg("window_lse").none(), nb::arg("window_dlse").none(), nb::arg("scale_gradient"),
             nb::arg("dq").none(), nb::arg("dk").none(), nb::arg("dv").none(), nb::arg("dscale").none(),
             nb::arg("block_counts").none(), nb::arg("block_size"), nb::arg("layout"), nb::arg("causal"),
             nb::arg("diagonal"), nb::arg("repeats"), nb::arg("window"), nb::arg("scale").none(),
             nb::arg("cu_seqlens_q").none(), nb::arg("cu_seqlens_k").none(), nb::arg("target"));
}

}  // namespace tegula::python

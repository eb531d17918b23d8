#include "groups.hpp"
#include "operators.hpp"

namespace tegula::python {

namespace {

// The arguments with which all gradients begin, and their outputs.
struct Backward {
  nb::handle dout, q, k, v, out, lse, dlse;
  TensorRef dout_ref, q_ref, k_ref, v_ref, out_ref, lse_ref;
  std::optional<TensorRef> dlse_ref;
  Output dq, dk, dv;

  Backward(Call& call, Arguments& given) {
    dout = given.array(), q = given.array(), k = given.array(), v = given.array(), out = given.array();
    lse = given.array(), dlse = given.array();
    dout_ref = call.input("dout", dout);
    q_ref = call.input("q", q), k_ref = call.input("k", k), v_ref = call.input("v", v);
    out_ref = call.input("out", out), lse_ref = call.input("lse", lse);
    dlse_ref = call.optional_input("dlse", dlse);
    dq = call.gradient_of("dq", {q, q_ref}), dk = call.gradient_of("dk", {k, k_ref});
    dv = call.gradient_of("dv", {v, v_ref});
  }

  ops::AttentionBackwardOptions options() const {
    ops::AttentionBackwardOptions options;
    options.dlse = dlse_ref;
    options.dq = dq.ref, options.dk = dk.ref, options.dv = dv.ref;
    return options;
  }
};

nb::tuple block_sparse_backward(const nb::args& arguments) {
  Call call;
  Arguments given("block_sparse_attn_backward", arguments);
  const Backward x(call, given);
  ops::BlockSparseOptions options = block_sparse_options(call, given);
  ops::AttentionBackwardOptions gradients = x.options();
  gradients.deterministic = given.flag("deterministic");
  options.target = target_of(given.text_or("target", "automatic"));
  const auto results = call.run([&] {
    return ops::block_sparse_attention_backward(x.dout_ref, x.q_ref, x.k_ref, x.v_ref, x.out_ref, x.lse_ref,
                                                options, gradients);
  });
  return nb::make_tuple(call.result(results.dq, x.dq), call.result(results.dk, x.dk),
                        call.result(results.dv, x.dv));
}

nb::tuple nsa_selected_backward(const nb::args& arguments) {
  Call call;
  Arguments given("nsa_selected_attention_backward", arguments);
  const Backward x(call, given);
  const nb::handle window_dout = given.array(), window_out = given.array(), window_lse = given.array(),
                   window_dlse = given.array(), indices = given.array();
  const TensorRef indices_ref = call.input("block_indices", indices);
  ops::NsaSelectedOptions options = selected_options(call, given);
  ops::NsaSelectedBackwardOptions gradients;
  gradients.dlse = x.dlse_ref;
  gradients.window_dout = call.optional_input("window_dout", window_dout);
  gradients.window_out = call.optional_input("window_out", window_out);
  gradients.window_lse = call.optional_input("window_lse", window_lse);
  gradients.window_dlse = call.optional_input("window_dlse", window_dlse);
  gradients.scale_gradient = given.flag("scale_gradient");
  options.target = target_of(given.text_or("target", "automatic"));
  Output dscale;
  if (gradients.scale_gradient)
    dscale = call.output("dscale", Py_None, {x.q, x.q_ref}, indices_ref.shape, f32);
  gradients.dq = x.dq.ref, gradients.dk = x.dk.ref, gradients.dv = x.dv.ref, gradients.dscale = dscale.ref;
  const auto results = call.run([&] {
    return ops::nsa_selected_attention_backward(x.dout_ref, x.q_ref, x.k_ref, x.v_ref, indices_ref, x.out_ref,
                                                x.lse_ref, options, gradients);
  });
  return nb::make_tuple(call.result(results.dq, x.dq), call.result(results.dk, x.dk),
                        call.result(results.dv, x.dv),
                        gradients.scale_gradient ? call.result(results.dscale, dscale) : nb::none());
}

}  // namespace

void define_backward(nb::module_& module) {
  module.def(
      "block_sparse_attn_backward", block_sparse_backward,
      nb::sig("def block_sparse_attn_backward(dout: object, q: object, k: object, v: object, out: "
              "object, lse: object, dlse: object | None, topk_indices: object | None, counts: object "
              "| None, mask: object | None, cu_seqlens_q: object | None, cu_seqlens_k: object | None, "
              "q_block_size: int, k_block_size: int, layout: str, causal: bool, scale: float | None, "
              "softcap: float, max_seqlen_q: int, max_seqlen_k: int, deterministic: bool, target: str = "
              "'automatic', /) -> tuple"));
  module.def(
      "nsa_selected_attention_backward", nsa_selected_backward,
      nb::sig("def nsa_selected_attention_backward(dout: object, q: object, k: object, v: object, out: "
              "object, lse: object, dlse: object | None, window_dout: object | None, window_out: "
              "object | None, window_lse: object | None, window_dlse: object | None, block_indices: "
              "object, block_counts: object | None, cu_seqlens_q: object | None, cu_seqlens_k: object "
              "| None, block_size: int, layout: str, causal: bool, diagonal: bool, repeats: bool, "
              "window: int, scale: float | None, max_seqlen_q: int, max_seqlen_k: int, scale_gradient: bool, "
              "target: str = 'automatic', /) "
              "-> tuple"));
}

}  // namespace tegula::python

#include "groups.hpp"
#include "operators.hpp"
#include "shapes.hpp"

namespace tegula::python {

namespace {

nb::tuple block_sparse(const nb::args& arguments) {
  Call call;
  Arguments given("block_sparse_attn", arguments);
  const nb::handle q = given.array(), k = given.array(), v = given.array();
  const TensorRef q_ref = call.input("q", q), k_ref = call.input("k", k), v_ref = call.input("v", v);
  ops::BlockSparseOptions options = block_sparse_options(call, given);
  options.check_indices = given.flag("check_indices");
  const AttentionShapes shapes = attention_shapes(q_ref, v_ref, options.layout);
  const Output out = call.output("out", given.array(), {q, q_ref}, shapes.out, q_ref.dtype);
  const Output lse = call.output("lse", given.array(), {q, q_ref}, shapes.lse, f32);
  options.target = target_of(given.text_or("target", "automatic"));
  options.out = out.ref, options.lse = lse.ref;
  const auto results = call.run([&] { return ops::block_sparse_attention(q_ref, k_ref, v_ref, options); });
  return nb::make_tuple(call.result(results.out, out), call.result(results.lse, lse));
}

nb::tuple nsa_selected(const nb::args& arguments) {
  Call call;
  Arguments given("nsa_selected_attention", arguments);
  const nb::handle q = given.array(), k = given.array(), v = given.array(), indices = given.array();
  const TensorRef q_ref = call.input("q", q), k_ref = call.input("k", k), v_ref = call.input("v", v);
  const TensorRef indices_ref = call.input("block_indices", indices);
  ops::NsaSelectedOptions options = selected_options(call, given);
  options.check_indices = given.flag("check_indices");
  options.target = target_of(given.text_or("target", "automatic"));
  const AttentionShapes shapes = attention_shapes(q_ref, v_ref, options.layout);
  const auto new_output = [&](const char* name, const std::optional<Shape>& shape, DType dtype) {
    return call.output(name, Py_None, {q, q_ref}, shape, dtype);
  };
  const Output out = new_output("out", shapes.out, q_ref.dtype), lse = new_output("lse", shapes.lse, f32);
  options.out = out.ref, options.lse = lse.ref;
  const auto run = [&] {
    return call.run([&] { return ops::nsa_selected_attention(q_ref, k_ref, v_ref, indices_ref, options); });
  };
  if (options.window <= 0) {
    const auto results = run();
    return nb::make_tuple(call.result(results.out, out), call.result(results.lse, lse));
  }
  const Output window_out = new_output("window_out", shapes.out, q_ref.dtype);
  const Output window_lse = new_output("window_lse", shapes.lse, f32);
  options.window_out = window_out.ref, options.window_lse = window_lse.ref;
  const auto results = run();
  return nb::make_tuple(call.result(results.out, out), call.result(results.lse, lse),
                        call.result(results.window_out, window_out),
                        call.result(results.window_lse, window_lse));
}

}  // namespace

void define_forward(nb::module_& module) {
  module.def(
      "block_sparse_attn", block_sparse,
      nb::sig("def block_sparse_attn(q: object, k: object, v: object, topk_indices: object | None, "
              "counts: object | None, mask: object | None, cu_seqlens_q: object | None, cu_seqlens_k: "
              "object | None, q_block_size: int, k_block_size: int, layout: str, causal: bool, scale: "
              "float | None, softcap: float, max_seqlen_q: int, max_seqlen_k: int, check_indices: bool, "
              "out: object | None = None, lse: object | None = None, target: str = 'automatic', /) -> "
              "tuple"));
  module.def("nsa_selected_attention", nsa_selected,
             nb::sig("def nsa_selected_attention(q: object, k: object, v: object, block_indices: object, "
                     "block_counts: object | None, cu_seqlens_q: object | None, cu_seqlens_k: object | None, "
                     "block_size: int, layout: str, causal: bool, diagonal: bool, repeats: bool, window: "
                     "int, scale: float | None, max_seqlen_q: int, max_seqlen_k: int, check_indices: bool, "
                     "target: str = 'automatic', /) -> tuple"));
}

}  // namespace tegula::python

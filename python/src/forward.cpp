#include "arguments.hpp"
#include "operators.hpp"

namespace tegula::python {

namespace {

nb::tuple attention(nb::object q, nb::object k, nb::object v, std::string layout, std::optional<float> scale,
                    bool causal, std::int64_t left, std::int64_t right, float softcap, nb::object sinks,
                    nb::object cu_seqlens_q, nb::object cu_seqlens_k, nb::object out, nb::object lse,
                    std::string target) {
  Call call;
  const TensorRef q_ref = call.input("q", q), k_ref = call.input("k", k), v_ref = call.input("v", v);
  ops::AttentionOptions options = dense_options(
      call, {layout, scale, causal, left, right, softcap, sinks, cu_seqlens_q, cu_seqlens_k, target});
  options.out = call.output("out", out), options.lse = call.output("lse", lse);
  const auto results = call.run([&] { return ops::attention(q_ref, k_ref, v_ref, options); });
  return nb::make_tuple(call.result(results.out, out), call.result(results.lse, lse));
}

nb::tuple block_sparse(nb::object q, nb::object k, nb::object v, int q_block, int k_block, nb::object indices,
                       nb::object counts, nb::object mask, std::string layout, bool causal,
                       std::optional<float> scale, float softcap, bool check_indices, nb::object out,
                       nb::object lse, std::string target) {
  Call call;
  const TensorRef q_ref = call.input("q", q), k_ref = call.input("k", k), v_ref = call.input("v", v);
  ops::BlockSparseOptions options = block_sparse_options(
      call, {layout, q_block, k_block, indices, counts, mask, causal, scale, softcap, check_indices, target});
  options.out = call.output("out", out), options.lse = call.output("lse", lse);
  const auto results = call.run([&] { return ops::block_sparse_attention(q_ref, k_ref, v_ref, options); });
  return nb::make_tuple(call.result(results.out, out), call.result(results.lse, lse));
}

nb::tuple nsa_selected(nb::object q, nb::object k, nb::object v, nb::object block_indices,
                       nb::object block_counts, int block_size, std::string layout, bool causal,
                       bool diagonal, bool repeats, std::int64_t window, std::optional<float> scale,
                       nb::object cu_seqlens_q, nb::object cu_seqlens_k, bool check_indices, nb::object out,
                       nb::object lse, nb::object window_out, nb::object window_lse, std::string target) {
  Call call;
  const TensorRef q_ref = call.input("q", q), k_ref = call.input("k", k), v_ref = call.input("v", v);
  const TensorRef indices_ref = call.input("block_indices", block_indices);
  ops::NsaSelectedOptions options =
      selected_options(call, {block_counts, block_size, layout, causal, diagonal, repeats, window, scale,
                              cu_seqlens_q, cu_seqlens_k, check_indices, target});
  options.out = call.output("out", out), options.lse = call.output("lse", lse);
  options.window_out = call.output("window_out", window_out);
  options.window_lse = call.output("window_lse", window_lse);
  const auto results =
      call.run([&] { return ops::nsa_selected_attention(q_ref, k_ref, v_ref, indices_ref, options); });
  if (window == 0) return nb::make_tuple(call.result(results.out, out), call.result(results.lse, lse));
  return nb::make_tuple(call.result(results.out, out), call.result(results.lse, lse),
                        call.result(results.window_out, window_out),
                        call.result(results.window_lse, window_lse));
}

nb::object block_scores(nb::object q, nb::object k, int q_block, int k_block, std::string layout, bool causal,
                        std::optional<float> scale, bool per_kv_head, nb::object out, std::string target) {
  Call call;
  const TensorRef q_ref = call.input("q", q), k_ref = call.input("k", k);
  ops::BlockScoresOptions options;
  options.layout = layout_of(layout);
  options.q_block = q_block, options.k_block = k_block;
  options.causal = causal;
  options.scale = scale;
  options.per_kv_head = per_kv_head;
  options.out = call.output("out", out);
  options.target = target_of(target);
  return call.result(call.run([&] { return ops::block_scores(q_ref, k_ref, options); }), out);
}

nb::object topk_blocks(nb::object scores, std::int64_t count, bool keep_first, bool keep_diagonal,
                       int q_block, int k_block, std::int64_t key_offset, nb::object out,
                       std::string target) {
  Call call;
  const TensorRef scores_ref = call.input("scores", scores);
  ops::TopkBlocksOptions options;
  options.keep_first = keep_first, options.keep_diagonal = keep_diagonal;
  options.q_block = q_block, options.k_block = k_block;
  options.key_offset = key_offset;
  options.out = call.output("out", out);
  options.target = target_of(target);
  return call.result(call.run([&] { return ops::topk_blocks(scores_ref, count, options); }), out);
}

nb::object gemm(nb::object a, nb::object b, bool transpose_a, bool transpose_b, nb::object bias,
                std::string activation, double scale, std::optional<std::string> out_dtype, nb::object out,
                std::string target) {
  Call call;
  const TensorRef a_ref = call.input("a", a), b_ref = call.input("b", b);
  ops::GemmOptions options;
  options.transpose_a = transpose_a, options.transpose_b = transpose_b;
  options.bias = call.optional_input("bias", bias);
  options.activation = activation_of(activation);
  options.scale = scale;
  if (out_dtype) options.out_dtype = dtype_of_name(*out_dtype);
  options.out = call.output("out", out);
  options.target = target_of(target);
  return call.result(call.run([&] { return ops::gemm(a_ref, b_ref, options); }), out);
}

}  // namespace

void define_forward(nb::module_& module) {
  module.def("attention", attention, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("layout"),
             nb::arg("scale").none(), nb::arg("causal"), nb::arg("left"), nb::arg("right"),
             nb::arg("softcap"), nb::arg("sinks").none(), nb::arg("cu_seqlens_q").none(),
             nb::arg("cu_seqlens_k").none(), nb::arg("out").none(), nb::arg("lse").none(), nb::arg("target"));
  module.def("block_sparse_attn", block_sparse, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("q_block_size"), nb::arg("k_block_size"), nb::arg("topk_indices").none(),
             nb::arg("counts").none(), nb::arg("mask").none(), nb::arg("layout"), nb::arg("causal"),
             nb::arg("scale").none(), nb::arg("softcap"), nb::arg("check_indices"), nb::arg("out").none(),
             nb::arg("lse").none(), nb::arg("target"));
  module.def("nsa_selected_attention", nsa_selected, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("block_indices"), nb::arg("block_counts").none(), nb::arg("block_size"),
             nb::arg("layout"), nb::arg("causal"), nb::arg("diagonal"), nb::arg("repeats"), nb::arg("window"),
             nb::arg("scale").none(), nb::arg("cu_seqlens_q").none(), nb::arg("cu_seqlens_k").none(),
             nb::arg("check_indices"), nb::arg("out").none(), nb::arg("lse").none(),
             nb::arg("window_out").none(), nb::arg("window_lse").none(), nb::arg("target"));
  module.def("block_scores", block_scores, nb::arg("q"), nb::arg("k"), nb::arg("q_block_size"),
             nb::arg("k_block_size"), nb::arg("layout"), nb::arg("causal"), nb::arg("scale").none(),
             nb::arg("per_kv_head"), nb::arg("out").none(), nb::arg("target"));
  module.def("topk_blocks", topk_blocks, nb::arg("scores"), nb::arg("count"), nb::arg("keep_first"),
             nb::arg("keep_diagonal"), nb::arg("q_block_size"), nb::arg("k_block_size"),
             nb::arg("key_offset"), nb::arg("out").none(), nb::arg("target"));
  module.def("gemm", gemm, nb::arg("a"), nb::arg("b"), nb::arg("transpose_a"), nb::arg("transpose_b"),
             nb::arg("bias").none(), nb::arg("activation"), nb::arg("scale"), nb::arg("out_dtype").none(),
             nb::arg("out").none(), nb::arg("target"));
}

}  // namespace tegula::python

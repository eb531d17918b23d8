// The operators in graphs, on a fake driver: a call whose outputs are given allocates nothing that
// outlives it and waits for nothing, in its first captured step too.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>

#include "cuda/nvrtc.hpp"
#include "cuda/testing/fake_driver.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/table.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/ops.hpp"
#include "tegula/stream.hpp"

namespace tegula::ops {
namespace capture_test {

using Step = std::function<void()>;

Tensor on_device(Shape shape, DType dtype = bf16) { return Tensor::zeros(shape, dtype, Device::cuda()); }

struct Heads {
  Tensor q = on_device({1, 192, 4, 64}), k = on_device({1, 192, 2, 64}), v = on_device({1, 192, 2, 64});
};

// A step that works into the results of an earlier call. It keeps them and what options refer to, as a
// caller's graph does.
Step dense(bool with_sinks) {
  const Heads h;
  const Tensor sinks = on_device({4});
  AttentionOptions options{.causal = true};
  if (with_sinks) options.sinks = sinks;
  const AttentionResult result = attention(h.q, h.k, h.v, options);
  options.out = result.out, options.lse = result.lse;
  AttentionBackwardOptions given;
  const auto gradients = attention_backward(result.out, h.q, h.k, h.v, result.out, result.lse, options);
  given.dq = gradients.dq, given.dk = gradients.dk, given.dv = gradients.dv;
  if (with_sinks) given.dsinks = gradients.dsinks;
  return [=, kept = std::pair(gradients, sinks)] {
    attention(h.q, h.k, h.v, options);
    attention_backward(result.out, h.q, h.k, h.v, result.out, result.lse, options, given);
  };
}

Step block_sparse() {
  const Heads h;
  const Tensor scores = block_scores(h.q, h.k), chosen = topk_blocks(scores, 2);
  BlockSparseOptions options{.indices = chosen, .causal = true};
  const AttentionResult result = block_sparse_attention(h.q, h.k, h.v, options);
  options.out = result.out, options.lse = result.lse;
  const auto gradients =
      block_sparse_attention_backward(result.out, h.q, h.k, h.v, result.out, result.lse, options);
  BlockSparseBackwardOptions given;
  given.dq = gradients.dq, given.dk = gradients.dk, given.dv = gradients.dv;
  return [=, kept = gradients] {
    block_scores(h.q, h.k, {.out = scores});
    topk_blocks(scores, 2, {.out = chosen});
    block_sparse_attention(h.q, h.k, h.v, options);
    block_sparse_attention_backward(result.out, h.q, h.k, h.v, result.out, result.lse, options, given);
  };
}

// Packed sequences, whose lengths the host does not know; blocks of single queries are copied first.
Step block_sparse_packed(int q_block) {
  const Tensor q = on_device({192, 4, 64}), k = on_device({192, 2, 64});
  const Tensor fences = Tensor::from<std::int32_t>({0, 100, 192}).to(Device::cuda());
  const Tensor indices = on_device({2, 2, 128 / q_block, 2}, i32),
               counts = on_device({2, 2, 128 / q_block}, i32);
  BlockSparseOptions options{.q_block_size = q_block, .indices = indices, .counts = counts};
  options.cu_seqlens_q = options.cu_seqlens_k = fences;
  const AttentionResult result = block_sparse_attention(q, k, k, options);
  options.out = result.out, options.lse = result.lse;
  const auto gradients =
      block_sparse_attention_backward(result.out, q, k, k, result.out, result.lse, options);
  BlockSparseBackwardOptions given;
  given.dq = gradients.dq, given.dk = gradients.dk, given.dv = gradients.dv;
  return [=, kept = std::tuple(gradients, fences, indices, counts)] {
    block_sparse_attention(q, k, k, options);
    block_sparse_attention_backward(result.out, q, k, k, result.out, result.lse, options, given);
  };
}

Step selected(int block_size, std::int64_t window) {
  const Heads h;
  const Tensor indices = on_device({1, 192, 2, 2}, i32);
  NsaSelectedOptions options{.block_size = block_size, .window = window};
  const NsaSelectedResult result = nsa_selected_attention(h.q, h.k, h.v, indices, options);
  options.out = result.out, options.lse = result.lse;
  NsaSelectedBackwardOptions given;
  if (window > 0) {
    options.window_out = result.window_out, options.window_lse = result.window_lse;
    given.dwindow_out = given.window_out = result.window_out, given.window_lse = result.window_lse;
  }
  const auto backward = [=](const NsaSelectedBackwardOptions& of) {
    return nsa_selected_attention_backward(result.out, h.q, h.k, h.v, indices, result.out, result.lse,
                                           options, of);
  };
  const NsaSelectedGradients gradients = backward(given);
  given.dq = gradients.dq, given.dk = gradients.dk, given.dv = gradients.dv;
  return [=, kept = gradients] {
    nsa_selected_attention(h.q, h.k, h.v, indices, options);
    backward(given);
  };
}

Step product() {
  const Tensor a = on_device({128, 64}), b = on_device({64, 128}), c = on_device({128, 128});
  const Tensor bias = on_device({128});
  return [=] { gemm(a, b, {.bias = bias, .out = c}); };
}

// A call by the operator's table, its last example, whose outputs are given.
Step by_table(const std::string& name) {
  const OperatorSchema& schema = find_schema(name);
  const ExampleCall call = ExampleCall::parse(schema, schema.examples.back().text);
  Tensors tensors;
  for (const auto& [input, tensor] : call.inputs(schema, 3))
    tensors.emplace(input, tensor.to(Device::cuda()));
  for (const auto& [output, tensor] : call_in_place(schema, tensors, call.options, Target::cuda()))
    tensors.insert_or_assign(output, tensor);
  return [=, &schema] { call_in_place(schema, tensors, call.options, Target::cuda()); };
}

struct Row {
  std::string name;
  std::function<Step()> make;
};

const Row rows[] = {{"dense", [] { return dense(false); }},
                    {"dense_with_sinks", [] { return dense(true); }},
                    {"block_sparse", block_sparse},
                    {"block_sparse_packed", [] { return block_sparse_packed(64); }},
                    {"block_sparse_packed_single_queries", [] { return block_sparse_packed(1); }},
                    {"selected", [] { return selected(64, 0); }},
                    {"selected_with_window", [] { return selected(16, 32); }},
                    {"product", product}};

// Operators whose lists, lengths and tables the host does not know.
std::vector<Row> rows_of_tables() {
  std::vector<Row> rows;
  for (const char* name :
       {"append_kv", "attention_with_kv_cache", "indexer_logits", "indexer_logits_backward", "indexer_topk",
        "indexer_topk_of_blocks", "merge_attention", "mla_decode", "paged_indexer_logits", "sparse_mla",
        "sparse_mla_backward", "sparse_mla_decode", "sparse_mla_target", "topk_select",
        "vertical_slash_blocks"})
    rows.push_back({name, [name] { return by_table(name); }});
  return rows;
}

class CapturedOperators : public ::testing::TestWithParam<Row> {};

TEST_P(CapturedOperators, NeedNothingThatAGraphCannotHold) {
  if (!cuda::find_nvrtc()) GTEST_SKIP() << "NVRTC was not found on this machine";
  const Watchdog watchdog(GetParam().name, std::chrono::seconds(60));  // compilation included
  const cuda::testing::FakeDriver fake;
  const cuda::ScopedDriver scope(fake.driver());
  const Step step = GetParam().make();
  const Stream stream = Stream::create();
  Graph::capture(stream, step).launch(stream);
}

INSTANTIATE_TEST_SUITE_P(Table, CapturedOperators, ::testing::ValuesIn(rows),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Decode, CapturedOperators, ::testing::ValuesIn(rows_of_tables()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tegula::ops

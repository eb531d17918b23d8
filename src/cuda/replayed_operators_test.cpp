// On a GPU: operators in graphs. A replay computes what a call computes, bit by bit, and follows
// lists that changed after the capture: nothing of them is planned on the host.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "cuda/driver.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/ops.hpp"
#include "tegula/stream.hpp"

namespace tegula::ops {
namespace replayed_operators_test {

constexpr std::chrono::seconds most_time{60};  // of a row, compilation included

struct Step {
  Tensor lists;
  std::int64_t blocks = 1, least = -1;  // which the lists name, from which on
  std::vector<Tensor> outputs;
  std::function<void()> run;
  std::function<void()> reset = [] {};  // of tensors that are updated in place
};

Tensor random_there(const Shape& shape, std::uint64_t seed) {
  return Tensor::random_normal(shape, bf16, seed).to(Device::cuda());
}
Tensor like(const Tensor& t, DType type) { return Tensor::empty(t.shape(), type, Device::cuda()); }

struct Sizes {
  std::int64_t tokens = 500, heads = 8, kv_heads = 2, dim = 64, entries = 4;
};

struct Heads {
  Tensor q, k, v, dout, out, lse, dq, dk, dv;

  explicit Heads(const Sizes& s, bool packed = false) {
    const auto shape = [&](std::int64_t heads) {
      return packed ? Shape{s.tokens, heads, s.dim} : Shape{1, s.tokens, heads, s.dim};
    };
    q = random_there(shape(s.heads), 1), k = random_there(shape(s.kv_heads), 2);
    v = random_there(shape(s.kv_heads), 3), dout = random_there(shape(s.heads), 4);
    out = like(q, bf16), dq = like(q, bf16), dk = like(k, bf16), dv = like(v, bf16);
    lse = Tensor::empty(packed ? Shape{s.heads, s.tokens} : Shape{1, s.heads, s.tokens}, f32, Device::cuda());
  }
};

Tensor fences(const std::vector<std::int32_t>& ends) { return Tensor::from(ends).to(Device::cuda()); }

Step of_blocks(const Sizes& s, int q_block, int k_block, bool per_query_head, bool causal,
               const std::vector<std::int32_t>& ends = {}) {
  const bool packed = !ends.empty();
  const Heads h(s, packed);
  const std::int64_t rows = (s.tokens + q_block - 1) / q_block;
  const std::int64_t sequences = packed ? static_cast<std::int64_t>(ends.size()) - 1 : 1;
  Step step;
  step.blocks = (s.tokens + k_block - 1) / k_block;
  step.lists =
      Tensor::empty({sequences, per_query_head ? s.heads : s.kv_heads, rows, s.entries}, i32, Device::cuda());
  step.outputs = {h.out, h.lse, h.dq, h.dk, h.dv};
  BlockSparseOptions options{.q_block_size = q_block, .k_block_size = k_block, .causal = causal};
  options.indices = step.lists, options.out = h.out, options.lse = h.lse;
  const Tensor begins = fences(packed ? ends : std::vector<std::int32_t>{0});
  if (packed) options.cu_seqlens_q = options.cu_seqlens_k = begins;
  BlockSparseBackwardOptions given;
  given.dq = h.dq, given.dk = h.dk, given.dv = h.dv;
  step.run = [=, lists = step.lists] {
    (void)begins;
    block_sparse_attention(h.q, h.k, h.v, options);
    block_sparse_attention_backward(h.dout, h.q, h.k, h.v, h.out, h.lse, options, given);
  };
  return step;
}

Step of_tokens(const Sizes& s, std::int64_t window, bool sel_scale_gradient,
               const std::vector<std::int32_t>& ends) {
  const bool packed = !ends.empty();
  const Heads h(s, packed);
  Step step;
  step.blocks = (s.tokens + 63) / 64;
  const Shape shape{s.tokens, s.kv_heads, s.entries};
  step.lists = Tensor::empty(packed ? shape : Shape{1, shape[0], shape[1], shape[2]}, i32, Device::cuda());
  step.outputs = {h.out, h.lse, h.dq, h.dk, h.dv};
  NsaSelectedOptions options{.window = window};
  options.out = h.out, options.lse = h.lse;
  NsaSelectedBackwardOptions given{.sel_scale_gradient = sel_scale_gradient};
  given.dq = h.dq, given.dk = h.dk, given.dv = h.dv;
  std::vector<Tensor> kept;
  const auto output = [&](const Tensor& t) {
    step.outputs.push_back(t);
    kept.push_back(t);
    return t;
  };
  if (window > 0) {
    options.window_out = output(like(h.out, bf16)), options.window_lse = output(like(h.lse, f32));
    given.dwindow_out = h.dout, given.window_out = options.window_out, given.window_lse = options.window_lse;
  }
  if (sel_scale_gradient) given.dsel_scale = output(like(step.lists, f32));
  if (packed) {
    kept.push_back(fences(ends));
    options.cu_seqlens_q = options.cu_seqlens_k = kept.back();
  }
  step.run = [=, lists = step.lists] {
    nsa_selected_attention(h.q, h.k, h.v, lists, options);
    nsa_selected_attention_backward(h.dout, h.q, h.k, h.v, lists, h.out, h.lse, options, given);
    (void)kept;
  };
  return step;
}

// A token is appended to pages of two caches, whose lengths lie on the device, and attends to them, in as
// many splits as the plan gives a cache of this size.
Step of_caches(std::int64_t pages_of_sequence, std::int64_t batch) {
  constexpr std::int64_t page = 16, heads = 8, kv_heads = 2, dim = 64, rank = 128;
  Step step;
  step.least = 0, step.blocks = pages_of_sequence * page + 1;
  step.lists = Tensor::empty({batch}, i32, Device::cuda());
  const std::int64_t pages = batch * pages_of_sequence;
  std::vector<std::int32_t> entries;  // no page twice, some are missing
  for (std::int64_t i = 0; i < pages; ++i)
    entries.push_back(i % 11 == 3 ? -1 : static_cast<std::int32_t>(i * 7 % pages));
  const Tensor table = Tensor::from(entries, {batch, pages_of_sequence}).to(Device::cuda());
  const Tensor q = random_there({batch, 1, heads, dim}, 1), k = random_there({batch, 1, kv_heads, dim}, 2),
               absorbed = random_there({batch, 1, heads, rank}, 3),
               latent = random_there({batch, 1, 1, rank}, 4),
               whole = random_there({pages, page, kv_heads, dim}, 5),
               latents = random_there({pages, page, 1, rank}, 6);
  const Tensor k_cache = like(whole, bf16), v_cache = like(whole, bf16), rows = like(latents, bf16);
  AttentionWithKvCache options;
  options.block_table = table, options.cache_seqlens = step.lists;
  options.out = step.outputs.emplace_back(like(q, bf16));
  options.lse = step.outputs.emplace_back(Tensor::empty({batch, heads, 1}, f32, Device::cuda()));
  MlaDecode latent_options;
  latent_options.d_v = rank / 2, latent_options.block_table = table,
  latent_options.cache_seqlens = step.lists;
  latent_options.out =
      step.outputs.emplace_back(Tensor::empty({batch, 1, heads, rank / 2}, bf16, Device::cuda()));
  latent_options.lse = step.outputs.emplace_back(Tensor::empty({batch, heads, 1}, f32, Device::cuda()));
  step.reset = [=] {
    copy_elements(whole, k_cache), copy_elements(whole, v_cache), copy_elements(latents, rows);
  };
  step.run = [=, lengths = step.lists, kept = step.outputs] {
    (void)kept;
    AppendKv appended;
    appended.v = k, appended.v_cache = v_cache, appended.block_table = table,
    appended.cache_seqlens = lengths;
    append_kv(k, k_cache, appended);
    attention_with_kv_cache(q, k_cache, v_cache, options);
    AppendKv of_latents;
    of_latents.block_table = table, of_latents.cache_seqlens = lengths;
    append_kv(latent, rows, of_latents);
    mla_decode(absorbed, rows.select(2, 0), latent_options);
  };
  return step;
}

struct Row {
  std::string name;
  std::function<Step()> make;
};

const Row rows[] = {
    {"blocks", [] { return of_blocks({}, 64, 64, false, true); }},
    {"blocks_for_every_query_head", [] { return of_blocks({}, 64, 64, true, false); }},
    {"long_lists_of_large_blocks",
     [] { return of_blocks({.tokens = 4001, .entries = 9}, 128, 128, false, false); }},
    {"blocks_of_one_query", [] { return of_blocks({}, 1, 64, false, true); }},
    {"blocks_of_one_query_for_every_query_head", [] { return of_blocks({}, 1, 64, true, true); }},
    {"single_keys", [] { return of_blocks({.entries = 90}, 128, 1, false, true); }},
    {"blocks_in_packed_sequences",
     [] {
       return of_blocks({}, 64, 64, false, true, {0, 7, 7, 300, 500});
     }},
    {"blocks_of_one_query_in_packed_sequences",
     [] {
       return of_blocks({}, 1, 64, false, false, {0, 7, 7, 300, 500});
     }},
    {"selected", [] { return of_tokens({}, 0, false, {}); }},
    {"selected_with_window_and_scales", [] { return of_tokens({.heads = 32}, 100, true, {}); }},
    {"selected_in_packed_sequences",
     [] {
       return of_tokens({}, 0, false, {0, 7, 7, 300, 500});
     }},
    {"selected_by_three_warp_groups",
     [] { return of_tokens({.tokens = 8229, .heads = 32, .dim = 128}, 0, false, {}); }},
    {"caches_in_splits", [] { return of_caches(40, 3); }},
    {"caches_of_many_sequences", [] { return of_caches(4, 150); }},
    {"selected_and_divided",
     [] { return of_tokens({.tokens = 12388, .dim = 128, .entries = 40}, 0, false, {}); }},
};

void fill(const Step& step, std::uint64_t seed) {
  copy_elements(Tensor::random_integers(step.lists.shape(), i32, seed, step.least, step.blocks), step.lists);
  step.reset();
  for (const Tensor& t : step.outputs) copy_elements(Tensor::full(t.shape(), t.dtype(), NAN), t);
  synchronize();
}

std::vector<std::vector<float>> results(const Step& step) {
  synchronize();
  std::vector<std::vector<float>> values;
  for (const Tensor& t : step.outputs) values.push_back(t.values<float>());
  return values;
}

class ReplayedOperators : public ::testing::TestWithParam<Row> {};

TEST_P(ReplayedOperators, AgreeWithCalls) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog(GetParam().name, most_time);
  const Step step = GetParam().make();
  std::vector<std::vector<std::vector<float>>> of_calls;
  for (const std::uint64_t seed : {5, 6}) {
    fill(step, seed);
    step.run();
    of_calls.push_back(results(step));
  }
  EXPECT_NE(of_calls[0], of_calls[1]);
  const Stream stream = Stream::create();
  const Graph graph = Graph::capture(stream, step.run);
  for (const std::uint64_t seed : {6, 5, 5}) {
    fill(step, seed);
    graph.launch(stream);
    stream.synchronize();
    EXPECT_EQ(results(step), of_calls[seed - 5]) << "lists " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ReplayedOperators, ::testing::ValuesIn(rows),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tegula::ops

#include "ops/registered.hpp"

#include <algorithm>
#include <set>

#include "ops/block_sparse/call.hpp"
#include "ops/block_sparse/options.hpp"
#include "ops/block_sparse/token_lists.hpp"
#include "ops/block_sparse/tokens.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

BlockSparseOptions block_sparse_options(const Tensors& inputs, const Options& options, Target target) {
  BlockSparseOptions result;
  result.layout = options.text("layout") == "bshd" ? Layout::bshd : Layout::bhsd;
  result.q_block = options.small_integer("q_block"), result.k_block = options.small_integer("k_block");
  result.indices = optional_ref(inputs, "indices");
  result.counts = optional_ref(inputs, "counts");
  result.mask = optional_ref(inputs, "mask");
  result.cu_seqlens_q = optional_ref(inputs, "cu_seqlens_q");
  result.cu_seqlens_k = optional_ref(inputs, "cu_seqlens_k");
  result.causal = options.boolean("causal");
  result.check_indices = options.boolean("check_indices");
  result.scale = optional_real(options, "scale");
  result.softcap = static_cast<float>(options.real("softcap"));
  result.tiles = {options.small_integer("tile_queries"), options.small_integer("tile_keys")};
  result.target = target;
  return result;
}

namespace {

BlockSparseCall prepared(const Tensors& in, const Options& options, Target target = Target::automatic()) {
  return prepare_block_sparse(required(in, "q"), required(in, "k"), required(in, "v"),
                              block_sparse_options(in, options, target));
}

// The distinct blocks that one query head's block of queries sees.
std::set<std::int64_t> chosen_blocks(const BlockSparseCall& call, std::array<std::int64_t, 4> row,
                                     std::int64_t blocks) {
  std::set<std::int64_t> chosen;
  const auto [b, h, g, i] = row;
  std::int64_t entries = call.choice.size(4);
  if (call.kernel.counts)
    entries = std::min(entries, static_cast<std::int64_t>(call.counts.get({b, h, g, i})));
  for (std::int64_t n = 0; n < entries; ++n) {
    const auto value = static_cast<std::int64_t>(call.choice.get({b, h, g, i, n}));
    if (call.kernel.mask && value != 0 && n < blocks) chosen.insert(n);
    if (!call.kernel.mask && value >= 0 && value < blocks) chosen.insert(value);
  }
  return chosen;
}

// Sequence b: its tokens.
struct Lengths {
  std::int64_t queries, keys;
};

Lengths lengths_of(const BlockSparseCall& call, std::int64_t b) {
  const HeadTensors& t = call.tensors;
  if (!call.kernel.varlen) return {t.q.size(1), t.k.size(1)};
  auto length = [&](const TensorRef& fences) {
    return static_cast<std::int64_t>(fences.get({b + 1}) - fences.get({b}));
  };
  return {length(*call.cu_seqlens_q), length(*call.cu_seqlens_k)};
}

// Pairs that a block of queries sees of a block of keys.
double pairs_of(const BlockSparseKernel& kernel, const Lengths& tokens, std::int64_t q_block,
                std::int64_t k_block) {
  const std::int64_t size_q = kernel.q_block, size_k = kernel.k_block, shift = tokens.keys - tokens.queries;
  const std::int64_t first = k_block * size_k, end = std::min(first + size_k, tokens.keys);
  double pairs = 0;
  for (std::int64_t i = q_block * size_q; i < std::min((q_block + 1) * size_q, tokens.queries); ++i) {
    const std::int64_t limit = kernel.causal ? std::min(end, i + shift + 1) : end;
    pairs += static_cast<double>(std::max<std::int64_t>(limit - first, 0));
  }
  return pairs;
}

Work work_of(const Tensors& in, const Options& options) {
  const BlockSparseCall call = prepared(in, options);
  const BlockSparseKernel& kernel = call.kernel;
  const HeadTensors& t = call.tensors;
  double pairs = 0;
  const Shape& shape = call.choice.shape;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    const Lengths tokens = lengths_of(call, b);
    const std::int64_t q_blocks = (tokens.queries + kernel.q_block - 1) / kernel.q_block,
                       k_blocks = (tokens.keys + kernel.k_block - 1) / kernel.k_block;
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t g = 0; g < shape[2]; ++g)
        for (std::int64_t i = 0; i < q_blocks; ++i)
          for (std::int64_t block : chosen_blocks(call, {b, h, g, i}, k_blocks))
            pairs += pairs_of(kernel, tokens, i, block);
  }
  pairs *= static_cast<double>(t.group()) / static_cast<double>(shape[2]);
  const double rows = static_cast<double>(nelements(t.q)) / t.dim();
  return {2 * pairs * (t.dim() + t.dim_v()), bytes_of(in) + rows * (t.dim_v() * t.q.dtype.bytes() + 4)};
}

struct Sizes {
  std::int64_t batch = 1, queries = 1, keys = 1, heads = 1, kv_heads = 1, dim = 64;
  int q_block = 64, k_block = 64;
  std::int64_t dim_v = 0;  // 0: as dim

  std::int64_t of_values() const { return dim_v > 0 ? dim_v : dim; }
};

enum class Choice { lists, lists_of_every_head, lists_with_counts, mask };

void add_choice(const Sizes& s, std::int64_t entries, Choice choice, std::uint64_t seed, Tensors& inputs) {
  const std::int64_t q_blocks = (s.queries + s.q_block - 1) / s.q_block,
                     k_blocks = (s.keys + s.k_block - 1) / s.k_block;
  const Shape lists{s.batch, choice == Choice::lists_of_every_head ? s.heads : s.kv_heads, q_blocks, entries};
  if (choice == Choice::mask)
    inputs.emplace(
        "mask",
        Tensor::random_integers({s.batch, s.kv_heads, q_blocks, k_blocks}, i32, seed + 3, 0, 2).to(boolean));
  else
    inputs.emplace("indices", Tensor::random_integers(lists, i32, seed + 3, -1, k_blocks));
  if (choice == Choice::lists_with_counts)
    inputs.emplace("counts",
                   Tensor::random_integers({s.batch, s.kv_heads, q_blocks}, i32, seed + 4, 0, entries + 1));
}

Case example(const std::string& name, Sizes s, DType type, std::int64_t entries, Choice choice,
             OptionTexts options = {}) {
  options["q_block"] = std::to_string(s.q_block), options["k_block"] = std::to_string(s.k_block);
  return {name, std::move(options), [=](std::uint64_t seed) {
            Tensors inputs{
                {"q", Tensor::random_normal({s.batch, s.queries, s.heads, s.dim}, type, seed)},
                {"k", Tensor::random_normal({s.batch, s.keys, s.kv_heads, s.dim}, type, seed + 1)},
                {"v", Tensor::random_normal({s.batch, s.keys, s.kv_heads, s.of_values()}, type, seed + 2)}};
            add_choice(s, entries, choice, seed, inputs);
            return inputs;
          }};
}

// Sequences of uneven lengths, one without queries and one without keys.
Case packed_example(const std::string& name, Sizes s, DType type, std::int64_t entries, Choice choice,
                    OptionTexts options = {}) {
  const std::int64_t queries = s.queries, keys = s.keys;  // of the longest
  options["q_block"] = std::to_string(s.q_block), options["k_block"] = std::to_string(s.k_block);
  return {name, std::move(options), [=](std::uint64_t seed) {
            auto fences = [](const std::vector<std::int64_t>& lengths) {
              std::vector<std::int32_t> at{0};
              for (std::int64_t n : lengths) at.push_back(at.back() + static_cast<std::int32_t>(n));
              return at;
            };
            const std::vector<std::int32_t> q_begin = fences({queries / 2 + 1, queries, 0, queries / 3}),
                                            k_begin = fences({keys, keys - 3, keys / 2, 0});
            Tensors inputs{
                {"q", Tensor::random_normal({q_begin.back(), s.heads, s.dim}, type, seed)},
                {"k", Tensor::random_normal({k_begin.back(), s.kv_heads, s.dim}, type, seed + 1)},
                {"v", Tensor::random_normal({k_begin.back(), s.kv_heads, s.of_values()}, type, seed + 2)},
                {"cu_seqlens_q", Tensor::from<std::int32_t>(q_begin)},
                {"cu_seqlens_k", Tensor::from<std::int32_t>(k_begin)}};
            Sizes longest = s;
            longest.batch = 4;
            add_choice(longest, entries, choice, seed, inputs);
            return inputs;
          }};
}

void describe_block_sparse(Operator& op) {
  op.name = "block_sparse_attention";
  op.summary = "attention in which every block of queries sees chosen blocks of keys";
  op.inputs = {
      {"q", "[batch, queries, heads, d], or packed [tokens, heads, d]", float_types, true, "queries"},
      {"k", "[batch, keys, kv_heads, d], or packed", float_types, true, "keys"},
      {"v", "[batch, keys, kv_heads, d_v], or packed", float_types, true, "values"},
      {"indices",
       "[batch or sequences, heads or kv_heads, q_blocks, entries]",
       {i32},
       false,
       "numbers of key blocks, others such as -1 for none"},
      {"counts",
       "[batch or sequences, heads or kv_heads, q_blocks]",
       {i32},
       false,
       "entries of each row that count"},
      {"mask",
       "[batch or sequences, heads or kv_heads, q_blocks, k_blocks]",
       {boolean},
       false,
       "instead of indices"},
      {"cu_seqlens_q", "[sequences + 1]", {i32}, false, "where packed sequences of queries begin and end"},
      {"cu_seqlens_k", "[sequences + 1]", {i32}, false, "where packed sequences of keys begin and end"}};
  op.outputs = {{"out", "as q, with d_v features", "that of q"},
                {"lse", "[batch, heads, queries], or packed [heads, tokens]", "f32"}};
  op.options = {
      {"q_block", OptionType::integer, "64", "queries of a block", {}},
      {"k_block", OptionType::integer, "64", "keys of a block", {}},
      {"layout", OptionType::choice, "bshd", "order of batch, sequence, heads, features", {"bshd", "bhsd"}},
      {"causal", OptionType::boolean, "false", "no later keys; the last query stands at the last key", {}},
      {"check_indices", OptionType::boolean, "false", "refuse entries that are neither -1 nor a block", {}},
      {"scale", OptionType::real, "", "of the scores, 1/sqrt(d) unless given", {}},
      {"softcap", OptionType::real, "0", "scores become c tanh(score / c), 0: not", {}},
      {"tile_queries", OptionType::integer, "0", "queries of a tile, 0: planned", {}},
      {"tile_keys", OptionType::integer, "0", "keys of a tile, 0: planned", {}}};
  op.check_cases = {
      example("lists", {1, 48, 64, 2, 2, 16, 16, 16}, f32, 2, Choice::lists),
      example("packed_heads_causal", {1, 30, 50, 4, 1, 16, 4, 8}, f32, 4, Choice::lists,
              {{"causal", "true"}}),
      example("counts_f16", {2, 40, 70, 2, 1, 16, 20, 24}, f16, 3, Choice::lists_with_counts),
      example("mask_single_keys", {1, 33, 41, 2, 2, 16, 16, 1}, f32, 0, Choice::mask),
      example("single_keys_causal_f16", {2, 40, 300, 4, 2, 24, 16, 1}, f16, 90, Choice::lists_with_counts,
              {{"causal", "true"}}),
      example("single_queries_bf16", {1, 90, 170, 4, 2, 64, 1, 32}, bf16, 4, Choice::lists_with_counts,
              {{"causal", "true"}}),
      example("wide_blocks_bf16", {1, 260, 300, 4, 2, 64, 128, 128}, bf16, 2, Choice::lists,
              {{"causal", "true"}}),
      example("features_192_128_bf16", {1, 90, 140, 4, 2, 192, 32, 48, 128}, bf16, 2, Choice::lists,
              {{"causal", "true"}}),
      example("features_96_f16", {1, 70, 130, 4, 2, 96, 16, 64}, f16, 2, Choice::lists_of_every_head),
      example("features_256_odd_blocks_bf16", {1, 75, 110, 2, 1, 256, 7, 24}, bf16, 3, Choice::lists),
      packed_example("packed", {1, 40, 70, 4, 2, 16, 16, 16, 24}, f32, 3, Choice::lists_with_counts,
                     {{"causal", "true"}}),
      packed_example("packed_bf16", {1, 150, 300, 4, 2, 64, 64, 64}, bf16, 4, Choice::lists_of_every_head,
                     {{"causal", "true"}}),
      packed_example("packed_mask_f16", {1, 90, 110, 4, 1, 64, 16, 8}, f16, 0, Choice::mask),
      packed_example("packed_single_queries_bf16", {1, 90, 170, 4, 2, 64, 1, 64}, bf16, 4,
                     Choice::lists_with_counts, {{"causal", "true"}}),
      example("diagonal_parts_bf16", {1, 300, 300, 4, 2, 64, 256, 256}, bf16, 2, Choice::lists,
              {{"causal", "true"}})};
  op.bench_cases = {example("4096_64x64_10%", {1, 4096, 4096, 8, 8, 64, 64, 64}, f32, 7, Choice::lists),
                    example("4096_64x64_25%", {1, 4096, 4096, 8, 8, 64, 64, 64}, f32, 18, Choice::lists),
                    example("4096_16x64_grouped", {1, 4096, 4096, 8, 1, 64, 16, 64}, f32, 7, Choice::lists),
                    example("4096_128x1", {1, 4096, 4096, 8, 8, 64, 128, 1}, f32, 512, Choice::lists)};
}

}  // namespace

Operator registered_block_sparse_attention() {
  Operator op;
  describe_block_sparse(op);
  auto tensors = [](const AttentionResult& result) {
    return Tensors{{"out", result.out}, {"lse", result.lse}};
  };
  op.run = [=](const Tensors& in, const Options& options, Target target) {
    return tensors(block_sparse_attention(required(in, "q"), required(in, "k"), required(in, "v"),
                                          block_sparse_options(in, options, target)));
  };
  op.reference = [=](const Tensors& in, const Options& options) {
    prepared(in, options);
    return tensors(reference::block_sparse_attention(required(in, "q"), required(in, "k"), required(in, "v"),
                                                     block_sparse_options(in, options)));
  };
  op.kernels = [](const Tensors& in, const Options& options, Target target) {
    const BlockSparseCall call = prepared(in, options, target);
    const auto selection = call.kernel.listed
                               ? as_selection(call, block_sparse_options(in, options, target).tiles)
                               : std::nullopt;
    if (!selection) return std::vector{block_sparse_kernel(call.kernel)};
    std::vector<lang::Kernel> kernels;
    if (call.kernel.varlen) kernels.push_back(token_lists_kernel({call.kernel.counts}));
    kernels.push_back(nsa_kernel(selection->kernel));
    return kernels;
  };
  op.work = work_of;
  op.tolerance = [](const Tensors& in, const Options&) {
    const Tensor& q = required(in, "q");
    return rounding_tolerance(q.dtype(), 16.0 * static_cast<double>(q.size(-1)));
  };
  return op;
}

}  // namespace tegula::ops

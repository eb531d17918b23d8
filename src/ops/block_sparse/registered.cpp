#include "ops/registered.hpp"

#include <algorithm>
#include <set>

#include "ops/block_sparse/call.hpp"
#include "ops/block_sparse/options.hpp"
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
    if (call.kernel.mask && value != 0) chosen.insert(n);
    if (!call.kernel.mask && value >= 0 && value < blocks) chosen.insert(value);
  }
  return chosen;
}

// Pairs that a block of queries sees of a block of keys.
double pairs_of(const BlockSparseCall& call, std::int64_t q_block, std::int64_t k_block) {
  const HeadTensors& t = call.tensors;
  const std::int64_t size_q = call.kernel.q_block, size_k = call.kernel.k_block,
                     shift = t.k.size(1) - t.q.size(1);
  const std::int64_t first = k_block * size_k, end = std::min(first + size_k, t.k.size(1));
  double pairs = 0;
  for (std::int64_t i = q_block * size_q; i < std::min((q_block + 1) * size_q, t.q.size(1)); ++i) {
    const std::int64_t limit = call.kernel.causal ? std::min(end, i + shift + 1) : end;
    pairs += static_cast<double>(std::max<std::int64_t>(limit - first, 0));
  }
  return pairs;
}

Work work_of(const Tensors& in, const Options& options) {
  const BlockSparseCall call = prepared(in, options);
  const HeadTensors& t = call.tensors;
  const std::int64_t blocks = (t.k.size(1) + call.kernel.k_block - 1) / call.kernel.k_block;
  double pairs = 0;
  const Shape& shape = call.choice.shape;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t g = 0; g < shape[2]; ++g)
        for (std::int64_t i = 0; i < shape[3]; ++i)
          for (std::int64_t block : chosen_blocks(call, {b, h, g, i}, blocks))
            pairs += pairs_of(call, i, block);
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

Case example(const std::string& name, Sizes s, DType type, std::int64_t entries, Choice choice,
             OptionTexts options = {}) {
  options["q_block"] = std::to_string(s.q_block), options["k_block"] = std::to_string(s.k_block);
  return {name, std::move(options), [=](std::uint64_t seed) {
            Tensors inputs{
                {"q", Tensor::random_normal({s.batch, s.queries, s.heads, s.dim}, type, seed)},
                {"k", Tensor::random_normal({s.batch, s.keys, s.kv_heads, s.dim}, type, seed + 1)},
                {"v", Tensor::random_normal({s.batch, s.keys, s.kv_heads, s.of_values()}, type, seed + 2)}};
            const std::int64_t q_blocks = (s.queries + s.q_block - 1) / s.q_block,
                               k_blocks = (s.keys + s.k_block - 1) / s.k_block;
            const Shape lists{s.batch, choice == Choice::lists_of_every_head ? s.heads : s.kv_heads, q_blocks,
                              entries};
            if (choice == Choice::mask)
              inputs.emplace("mask", Tensor::random_integers({s.batch, s.kv_heads, q_blocks, k_blocks}, i32,
                                                             seed + 3, 0, 2)
                                         .to(boolean));
            else
              inputs.emplace("indices", Tensor::random_integers(lists, i32, seed + 3, -1, k_blocks));
            if (choice == Choice::lists_with_counts)
              inputs.emplace("counts", Tensor::random_integers({s.batch, s.kv_heads, q_blocks}, i32, seed + 4,
                                                               0, entries + 1));
            return inputs;
          }};
}

void describe_block_sparse(Operator& op) {
  op.name = "block_sparse_attention";
  op.summary = "attention in which every block of queries sees chosen blocks of keys";
  op.inputs = {
      {"q", "[batch, queries, heads, d]", float_types, true, "queries"},
      {"k", "[batch, keys, kv_heads, d]", float_types, true, "keys"},
      {"v", "[batch, keys, kv_heads, d_v]", float_types, true, "values"},
      {"indices",
       "[batch, heads or kv_heads, q_blocks, entries]",
       {i32},
       false,
       "numbers of key blocks, others such as -1 for none"},
      {"counts", "[batch, heads or kv_heads, q_blocks]", {i32}, false, "entries of each row that count"},
      {"mask", "[batch, heads or kv_heads, q_blocks, k_blocks]", {boolean}, false, "instead of indices"}};
  op.outputs = {{"out", "as q, with d_v features", "that of q"}, {"lse", "[batch, heads, queries]", "f32"}};
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
    return std::vector{selection ? nsa_kernel(selection->kernel) : block_sparse_kernel(call.kernel)};
  };
  op.work = work_of;
  op.tolerance = [](const Tensors& in, const Options&) {
    const Tensor& q = required(in, "q");
    return rounding_tolerance(q.dtype(), 16.0 * static_cast<double>(q.size(-1)));
  };
  return op;
}

}  // namespace tegula::ops

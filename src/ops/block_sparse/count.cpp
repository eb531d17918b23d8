// How many pairs of a query and a key a choice has.
#include <algorithm>

#include "ops/block_sparse/table.hpp"

namespace tegula::ops {

namespace {

// Sequence b: its tokens.
struct Lengths {
  std::int64_t queries, keys;
};

Lengths lengths_of(const BoundCall& bound, std::int64_t b) {
  if (!bound.has("cu_seqlens_q")) return {bound.dim("queries"), bound.dim("keys")};
  const auto length = [&](const char* name) {
    return static_cast<std::int64_t>(bound[name].get({b + 1}) - bound[name].get({b}));
  };
  return {length("cu_seqlens_q"), length("cu_seqlens_k")};
}

// The distinct blocks that a row chooses.
std::vector<std::int64_t> chosen_blocks(const BoundCall& bound, const std::array<std::int64_t, 3>& row,
                                        std::int64_t blocks) {
  const auto [b, h, i] = row;
  const bool mask = bound.has("mask");
  const TensorRef& choice = bound[mask ? "mask" : "indices"];
  std::int64_t entries = choice.size(3);
  if (bound.has("counts"))
    entries = std::min(entries, static_cast<std::int64_t>(bound["counts"].get({b, h, i})));
  std::vector<std::int64_t> chosen;
  for (std::int64_t n = 0; n < entries; ++n) {
    const auto value = static_cast<std::int64_t>(choice.get({b, h, i, n}));
    const std::int64_t block = !mask ? value : value != 0 ? n : -1;
    if (block >= 0 && block < blocks) chosen.push_back(block);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// Pairs that a block of queries sees of a block of keys.
double pairs_of(const BlockSparseOptions& options, const Lengths& tokens, std::int64_t q_block,
                std::int64_t k_block) {
  const std::int64_t size_q = options.q_block_size, size_k = options.k_block_size,
                     shift = tokens.keys - tokens.queries, first = k_block * size_k,
                     end = std::min(first + size_k, tokens.keys);
  double pairs = 0;
  for (std::int64_t i = q_block * size_q; i < std::min((q_block + 1) * size_q, tokens.queries); ++i) {
    const std::int64_t limit = options.causal ? std::min(end, i + shift + 1) : end;
    pairs += static_cast<double>(std::max<std::int64_t>(limit - first, 0));
  }
  return pairs;
}

}  // namespace

double chosen_pairs(const BoundCall& bound, const BlockSparseOptions& options) {
  const TensorRef& choice = bound[bound.has("mask") ? "mask" : "indices"];
  double pairs = 0;
  for (std::int64_t b = 0; b < choice.size(0); ++b) {
    const Lengths tokens = lengths_of(bound, b);
    const std::int64_t q_blocks = lang::ceildiv(tokens.queries, std::int64_t{options.q_block_size}),
                       k_blocks = lang::ceildiv(tokens.keys, std::int64_t{options.k_block_size});
    for (std::int64_t h = 0; h < choice.size(1); ++h)
      for (std::int64_t i = 0; i < q_blocks; ++i)
        for (const std::int64_t block : chosen_blocks(bound, {b, h, i}, k_blocks))
          pairs += pairs_of(options, tokens, i, block);
  }
  return pairs * static_cast<double>(bound.dim("heads")) /
         static_cast<double>(std::max<std::int64_t>(choice.size(1), 1));
}

}  // namespace tegula::ops

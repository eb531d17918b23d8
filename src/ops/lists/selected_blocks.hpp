// How tokens select blocks, as far as lists of blocks and of tokens depend on it.
#pragma once

namespace tegula::ops {

inline constexpr int chunk_tokens = 256;        // whose pairs with blocks are sorted together, at least
inline constexpr int pair_counts_of_token = 8;  // of a query or key, at most: chunks are so long

struct SelectedBlocks {
  int block = 64;    // keys of a block
  int entries = 16;  // of a row, at most
  int queries = 1;   // neighbouring tokens that share a tile
  // A query sees no later keys; its own block, whether it selected it or not; a block as often as it is
  // named.
  bool causal = true, diagonal = false, repeats = false;
  bool varlen = false;
  // Tokens of a tile in groups, of which each may leave out blocks that fewer than so many of its tokens
  // selected, where that spares it at least so many blocks.
  int row_groups = 1, fewest = 1, least_gain = 0;
  int chunk = chunk_tokens;  // where pairs are sorted by blocks

  int width() const { return entries + (diagonal ? 1 : 0); }  // of a row, with the token's own block
  // A tile serves rows that chose differently.
  bool has_times() const { return queries > 1 || repeats; }
  bool divides() const { return fewest > 1; }
};

}  // namespace tegula::ops

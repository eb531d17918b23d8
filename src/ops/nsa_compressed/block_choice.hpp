// The choice of the largest of the weights of blocks, by a warp or a block of threads.
#pragma once
#include <functional>

#include "tegula/lang.hpp"

namespace tegula::ops {

// Chooses the `count` blocks with the largest weights, those at the beginning and up to the query's own
// before all others, of equal weights the first. Threads form a key for every block, larger for those that
// matter more and 0 for those that cannot be chosen, hold the keys in registers, and find the count-th
// largest bit by bit.
struct BlockChoice {
  int columns = 32;  // blocks that threads hold at a time
  bool held = true;  // all of them
  lang::Expr count, first_blocks, local_blocks;

  // Weights of the blocks from `begin` on: not negative, or NaN, which counts as 0. `keys` has the shape.
  using Weights = std::function<lang::Fragment(const lang::Expr& begin, const lang::Fragment& keys)>;
  // Puts the number of a block, or -1, at a place of the list.
  using Put = std::function<void(const lang::Expr& place, const lang::Expr& number)>;
  // Lists the chosen ones of the first `seen` blocks, ascending and followed by -1.
  void choose(const Weights& weights, const lang::Var& seen, const Put& put) const;

 private:
  using ChunkBody = std::function<void(const lang::Expr& begin, const lang::Fragment& keys)>;
  using EachChunk = std::function<void(const ChunkBody&)>;

  void form_keys(const Weights& weights, const lang::Var& seen, const lang::Expr& begin,
                 lang::Fragment& keys) const;
  void find_bound(const EachChunk& each, const lang::Var& seen, lang::Var& bound) const;
  void list(const EachChunk& each, const Put& put, const lang::Expr& bound) const;
};

}  // namespace tegula::ops

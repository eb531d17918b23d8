// Where several blocks of keys share a list of blocks of queries: which of them the queries of a step chose.
#pragma once
#include <memory>
#include <vector>

#include "ops/lists/inverse.hpp"
#include "ops/lists/walk.hpp"

namespace tegula::ops {

// Bits for a few blocks of queries are numbers that loops read ahead; otherwise there is one number per
// query. May record statements before the step.
class ChosenBits {
 public:
  ChosenBits(const InverseLists::List& list, const BlockTile& step, int fold);

  // The result is arbitrary for a block after those that share the list.
  lang::Expr has(const lang::Expr& query, const lang::Expr& block) const;

 private:
  lang::Expr word_of(const lang::Expr& query, const lang::Expr& block, int w = 0) const;
  lang::Expr word(const lang::Expr& query, int w, std::size_t i = 0) const;

  int words_, block_;
  std::vector<lang::Expr> of_blocks_;  // all words of a block, block by block
  std::shared_ptr<lang::Shared> of_queries_;
};

}  // namespace tegula::ops

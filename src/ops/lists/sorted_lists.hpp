// Lists of chosen blocks that are made once, before the grid whose tiles share them: every block once,
// ascending. Memory: room for every entry of the choice.
#pragma once
#include <functional>

#include "ops/lists/lists.hpp"

namespace tegula::ops {

// How many blocks of so many are marked at a time: of few sizes.
int marked_blocks(std::int64_t blocks);

class SortedLists {
 public:
  // One row: what it chose, and how many blocks there are that it may meet.
  struct Row {
    ChoiceRow choice;
    lang::Expr blocks;
  };
  using OfRow = std::function<Row(const lang::Expr& batch, const lang::Expr& head, const lang::Expr& row)>;

  // Declares workspaces for lists of at most `width` blocks. As fast as it can be for `blocks` blocks; more
  // take longer.
  SortedLists(const lang::Expr& batches, const lang::Expr& heads, const lang::Expr& rows,
              const lang::Expr& width, std::int64_t blocks, OfRow of_row);

  void record_grid() const;

  struct List {
    lang::Tensor blocks;
    lang::Expr count;
  };
  List list(const lang::Expr& batch, const lang::Expr& head, const lang::Expr& row) const;

 private:
  int words_;
  lang::Expr batches_, heads_, rows_;
  OfRow of_row_;
  lang::Tensor lists_, lengths_;
};

// The number of last blocks of a sorted list that may have keys that some query of the row does not see:
// under a causal mask, as many as the positions of a row span; otherwise only the very last block, if it is
// short.
lang::Expr blocks_in_question(bool causal, int q_block, int k_block, const lang::Expr& queries,
                              const lang::Expr& keys);

}  // namespace tegula::ops

// Lists of chosen blocks that are made once, before the grid whose tiles share them: every block once,
// ascending. Memory: room for every entry of the choice.
#pragma once
#include <functional>

#include "ops/block_sparse/lists.hpp"

namespace tegula::ops {

class SortedLists {
 public:
  // One row: what it chose, and how many blocks there are that it may meet.
  struct Row {
    ChoiceRow choice;
    lang::Expr blocks;
  };
  using OfRow = std::function<Row(const lang::Expr& batch, const lang::Expr& head, const lang::Expr& row)>;

  // Declares workspaces for lists of at most `width` blocks.
  SortedLists(const lang::Expr& batches, const lang::Expr& heads, const lang::Expr& rows,
              const lang::Expr& width, OfRow of_row);

  void record_grid() const;

  struct List {
    lang::Tensor blocks;
    lang::Expr count;
  };
  List list(const lang::Expr& batch, const lang::Expr& head, const lang::Expr& row) const;

 private:
  lang::Expr batches_, heads_, rows_;
  OfRow of_row_;
  lang::Tensor lists_, lengths_;
};

}  // namespace tegula::ops

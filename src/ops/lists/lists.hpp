// What a block of queries chose, as a list that holds every block once.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// One row: numbers of blocks in any order, of which the first `entries` count, or a mask over all blocks.
struct ChoiceRow {
  lang::Tensor row;
  lang::Expr entries;
  bool mask = false;
};

// The chosen blocks in [begin, end), ascending, and their number. `list` has room for end − begin. A plain
// loop, for CPUs; on GPUs SortedLists makes the lists.
void list_blocks(const ChoiceRow& choice, const lang::Expr& begin, const lang::Expr& end, lang::Shared& list,
                 lang::Var& count);

}  // namespace tegula::ops

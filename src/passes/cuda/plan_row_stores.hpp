// Which sums of products threads store, or add, by rows: each of the four threads that share a row writes 16
// bytes of it at a time. They exchange words for that, unless the program puts the eight columns that a
// thread has of 32 one after the other.
#pragma once
#include "ir/bounds.hpp"
#include "passes/cuda/infer_layouts.hpp"
#include "passes/cuda/row_loops.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

// The sum of a wgmma of which warp groups have rows, or of 64 rows columns; rows begin at multiples of 16 bytes, in
// a workspace, which is without holes, or in a tensor that the copy engine could take.
struct RowStore {
  RowLoop rows;
  ir::BufferPtr sum;
  bool is_bare = false;  // what is stored are the elements of the sum, rounded
  bool in_own_order = false;  // the columns of a thread are one after the other
  bool is_window = false;     // rows may end before the columns of the sum do, where a piece ends
};

// The columns that the four threads write with one instruction.
int quad_columns(DType type);
// Where a column of the sum is, of `quad` that four threads have, if those of each thread follow one another.
std::int64_t own_place(std::int64_t column, int quad);

// Without a reason where no row has a place of its own: then nobody could expect pieces. `group`: the number of the
// warp group that runs the program for its columns, if each does.
Planned<RowStore> plan_row_store(const ir::Stmt& s, const Layouts& layouts, int threads,
                                 const CudaTarget& target, const ir::VariablePtr& group = nullptr,
                                 const ir::Facts& facts = ir::Facts());

}  // namespace tegula::passes

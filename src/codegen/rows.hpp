// Neighbouring parallel loops and reductions over the same rows, which can share one loop.
#pragma once
#include <unordered_set>

#include "ir/ir.hpp"

namespace tegula::codegen {

// One parallel loop, or one reduction along contiguous elements, with indices of our own: `outer` and, for
// the lanes of vectors, `lane`.
struct RowOp {
  std::vector<ir::VariablePtr> outer;
  std::vector<ir::Expr> outer_extents;
  ir::VariablePtr lane;
  ir::Expr extent;
  ir::Body body;       // of a parallel loop; of a reduction the load of `value`
  bool vector = true;  // the body can be printed with vectors
  // For a reduction.
  bool reduces = false;
  ir::ReduceOp op = ir::ReduceOp::sum;
  bool overwrite = false;
  ir::VariablePtr value;
  ir::Access to;
  Loc at;
};

// Null if the statement is neither.
std::optional<RowOp> row_op(const ir::Stmt& stmt);
// The same op over the indices of the first one of a group; null if the extents differ.
std::optional<RowOp> aligned(const RowOp& op, const RowOp& first);
// Whether each row can be finished by all ops before the next row begins. A tensor that is written shares no
// memory with others if `tensors_are_apart`.
bool can_join(const RowOp& op, const std::vector<RowOp>& group, bool tensors_are_apart);
// Whether, within a row, each vector can be.
bool can_share_pass(const RowOp& op, const std::vector<RowOp>& pass);
// The op multiplies all elements of a row of a tile in place by the number that `of_row` loads, and does no
// more.
struct RowFactor {
  ir::Expr factor;
  const ir::Load* of_row;
};
std::optional<RowFactor> factor_of_row(const RowOp& op);
// The tiles of a loop that hold running maxima, and those that are computed from them.
std::unordered_set<const ir::Buffer*> of_running_maxima(const ir::Body& loop);

}  // namespace tegula::codegen

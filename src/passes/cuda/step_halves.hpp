// Divides the tile of dealt steps into halves of its columns, each of which one warp group lets go.
//
// The group that forms the scores of a step reads all columns of its tile. Once they are formed, each column
// has one reader: the group that multiplies by it. So the half of the step's own group and that of the other
// one come with barriers of their own: a half comes again when its only reader is done with it, and scores
// begin when the first half is there.
#pragma once
#include <optional>

#include "passes/cuda/step_shares.hpp"

namespace tegula::passes {

class StepHalves {
 public:
  // Nothing where the step reads the tile by other than products along its columns, or it is not filled by
  // rows of a tensor as they are. `group` is the number of the warp group that runs the program.
  static std::optional<StepHalves> of(const StepShares& step, const Roles& roles, ir::VariablePtr group,
                                      const CudaTarget& target);

  // What takes the tile's place: the columns by which the step's group multiplies, and the others.
  const ir::BufferPtr& own() const { return own_; }
  const ir::BufferPtr& other() const { return other_; }
  // What the step's group does alone, by halves.
  const ir::Body& work() const { return work_; }
  // The producer brings the halves to rings of their own. Tiles that came with the whole come with the other
  // half: the step's group is done with both at the same time.
  void divide(Roles& roles) const;

 private:
  StepHalves(const StepShares& step, const Roles& roles, ir::VariablePtr group);
  bool is_divisible(const Roles& roles) const;
  // False where not all products can be by halves.
  bool divide_work(const StepShares& step, const CudaTarget& target);
  std::optional<ir::Gemm> product(const ir::Gemm& whole, bool of_own) const;
  std::optional<ir::View> half(const ir::View& operand, int along_k, bool of_own) const;
  // The fill of a half, from which column of the tensor on.
  ir::Stmt fill(bool of_own, const ir::Expr& first) const;
  ir::Body fills(const ir::For& loop, Roles& roles) const;

  ir::BufferPtr tile_, own_, other_;
  ir::VariablePtr group_;
  ir::Stmt fill_;             // of the tile; null if there are several
  std::int64_t columns_ = 0;  // of a half
  ir::Body work_;
};

}  // namespace tegula::passes

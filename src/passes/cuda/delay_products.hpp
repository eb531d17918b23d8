// Lets products overlap with what follows them.
//
// A loop  first products, work, last products  becomes
//   first products, work;  loop { first products, last products of the previous step, work };  last products
// or one such loop for the steps without a mask and one for those with it, so that the tensor cores multiply
// while the other units work. Loops that only multiply are marked; they only need late waits.
#pragma once
#include <unordered_set>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

enum class LoopShape : std::uint8_t {
  plain,    // all products of a step are awaited in it
  deep,     // nothing but products, awaited in the step after theirs
  delayed,  // the last products belong to the step before
  early,    // products by turns; tiles of the next step are awaited under the last one
  twofold,  // two steps, with sums of their own: one's products run while the other one's are added
};

struct ConsumerProgram {
  ir::Body body;
  // Branches that were put around loops, taken if the loop has a step; the loops in them.
  std::unordered_map<const ir::StmtNode*, const ir::StmtNode*> non_empty;
  std::unordered_map<const ir::StmtNode*, LoopShape> shapes;  // of loops that are not plain
  // Keyed by the index of a loop whose last product is delayed: the tile that this product reads and no other
  // product of a step reads.
  std::unordered_map<const ir::Variable*, const ir::Buffer*> late;
  // Indices of loops that were split, and of those that do the rest of their steps.
  std::unordered_map<const ir::Variable*, const ir::Variable*> continued;
  // Keyed by the index of a loop of two steps: the branch in which a last step starts.
  std::unordered_map<const ir::Variable*, const ir::StmtNode*> left_over;
  // Indices of loops whose products warp groups issue in turns: one adds its sums to others while another one
  // multiplies.
  std::unordered_set<const ir::Variable*> turns;
  // Operands that are made in every step of a loop, in one half of twice the memory and then in the other, so
  // that no thread waits until they have been read; and the ring of that loop whose slots count the steps.
  std::unordered_map<const ir::Buffer*, int> alternating;
  std::unordered_set<int> in_loops;  // rings whose tiles come in steps of a pipelined loop
  // Tiles of the step before, and those of the ring that they are: both steps read the tile. Of such a ring
  // the slot of a step is let go in the next one.
  std::unordered_map<const ir::Buffer*, ir::BufferPtr> before;
  std::unordered_set<int> held;
  // The indices of loops of several products none of which is delayed, and why: with a place where the user
  // can change it by a hint.
  std::vector<std::pair<const ir::Variable*, Reason>> reasons;

  // The tile that a ring has for this one.
  const ir::Buffer* in_ring(const ir::Buffer* tile) const;
};

ConsumerProgram delay_products(const Roles& roles, const CudaTarget& target);

}  // namespace tegula::passes

// Lets products overlap with what follows them.
//
// A loop  product 1, work, product 2  becomes
//   product 1, work;  loop { product 1, product 2 of the step before, work };  product 2
// or one such loop for the steps without a mask and one for those with it,
// so that the tensor cores multiply while the other units work. Loops of one product, which only need their
// waits to be late, are marked.
#pragma once
#include <unordered_set>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

enum class LoopShape : std::uint8_t {
  plain,    // all products of a step are awaited in it
  deep,     // one product, awaited in the step behind it
  delayed,  // the last product belongs to the step before
};

struct ConsumerProgram {
  ir::Body body;
  // Branches that were put around loops, taken if the loop has a step; the loops in them.
  std::unordered_map<const ir::StmtNode*, const ir::StmtNode*> non_empty;
  std::unordered_map<const ir::StmtNode*, LoopShape> shapes;  // of loops that are not plain
  // By the index of a loop whose last product is delayed, the tile that it multiplies with.
  std::unordered_map<const ir::Variable*, const ir::Buffer*> late;
  // Indices of loops that were split, and of those that do the rest of their steps.
  std::unordered_map<const ir::Variable*, const ir::Variable*> continued;
  // Operands that are made in every step of a loop, in one half of twice the memory and then in the other, so
  // that no thread waits until they have been read; and the ring of that loop whose slots count the steps.
  std::unordered_map<const ir::Buffer*, int> alternating;
  std::unordered_set<int> in_loops;  // rings whose tiles come in steps of a pipelined loop
  // Tiles of the step before, and those of the ring that they are: both steps read the tile. Of such a ring
  // the slot of a step is let go in the next one.
  std::unordered_map<const ir::Buffer*, ir::BufferPtr> before;
  std::unordered_set<int> held;
};

ConsumerProgram delay_products(const Roles& roles, const CudaTarget& target);

}  // namespace tegula::passes

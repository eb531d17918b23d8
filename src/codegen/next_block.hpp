// What a block prefetches for the next block of its thread: the data that the latter reads first.
#pragma once
#include <optional>
#include <vector>

#include "ir/ir.hpp"

namespace tegula::codegen {

struct NextBlock {
  // The beginning of a block, up to its first product, as far as addresses need it. A copy to one of `places`
  // stands for what is fetched.
  ir::Body beginning;
  std::vector<ir::BufferPtr> places;
  // In the last pipelined loop, places[left] is prefetched while the rows of `pass` are computed with `left`
  // iterations remaining, if all enclosing loops are in their last iteration.
  ir::Stmt pass;
  ir::Expr left, last;
};

// Nothing if there is no such loop and pass, or if the beginning is more than a choice of addresses.
std::optional<NextBlock> next_block(const ir::Kernel& kernel, const ir::Grid& grid);

}  // namespace tegula::codegen

// What reductions keep while they are formed.
#pragma once
#include <string>

#include "codegen/cuda/places.hpp"
#include "ir/stmt.hpp"
#include "layout/layout.hpp"

namespace tegula::codegen {

// Two chains a register where it is formed in parts.
struct Partial {
  std::string name;
  layout::Layout layout;
  int chains = 0;
};

// Parts of a sum that warps have put into shared memory and not added up yet.
struct Meeting {
  ir::ReduceOp op = ir::ReduceOp::sum;
  FragmentTile sum;
  Loc at;
  SharedTile tile;
  std::int64_t parts = 1, elements = 1;
};

}  // namespace tegula::codegen

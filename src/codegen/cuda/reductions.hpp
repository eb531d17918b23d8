// What reductions keep while they are formed.
#pragma once
#include <string>

#include "codegen/cuda/places.hpp"
#include "ir/stmt.hpp"
#include "layout/layout.hpp"

namespace tegula::codegen {

// Sums of fewer than 32 bits are formed of 32.
inline DType type_of_parts(DType type) {
  return type.bits() < 32 && !type.is_boolean() ? compute_type(type) : type;
}

// Two chains a register where it is formed in parts.
struct Partial {
  std::string name;
  layout::Layout layout;
  int chains = 0;
};

// Sums of a block that is spread over a cluster: so many meetings have places of their own before they recur.
// With two of them nobody waits for who still reads: whoever sends parts has had those of the meeting before
// from every warp, and each of these had read those of the one before that.
inline constexpr int meeting_places = 2;

// Parts of a sum that warps have put into shared memory and not added up yet.
struct Meeting {
  ir::ReduceOp op = ir::ReduceOp::sum;
  FragmentTile sum;
  Loc at;
  SharedTile tile;
  std::int64_t parts = 1, elements = 1;
  bool is_counted = false;  // a barrier of each CTA counts what has come
};

}  // namespace tegula::codegen

// What operations on whole tiles share: their sides, and the elements of two sides in pairs.
#pragma once
#include <array>
#include <vector>

#include "interp/machine.hpp"

namespace tegula::interp {

// One side of an element-by-element operation.
struct Side {
  Memory& memory;
  const ResolvedView& view;

  Side(Machine& m, const PreparedView& prepared)
      : memory(m.buffer(prepared.buffer)), view(m.resolve(prepared)) {}

  // For operations that need every element: only copies may reach outside of a tile.
  Side(Machine& m, const PreparedView& prepared, const Node& node) : Side(m, prepared) {
    if (view.empty) m.fail_outside(prepared, node.at());
  }
};

// Calls f(position of a, position of b, index) for every index; a position not in its view is `outside`.
template <class F>
void for_each_pair(const std::vector<std::int64_t>& extents, const ResolvedView& a, const ResolvedView& b,
                   const F& f) {
  const std::size_t rank = extents.size();
  std::array<std::int64_t, 8> index{};
  std::int64_t remaining = 1;
  for (const std::int64_t extent : extents) remaining *= extent;
  while (remaining-- > 0) {
    std::int64_t at_a = a.base, at_b = b.base;
    bool in_a = !a.empty, in_b = !b.empty;
    for (std::size_t d = 0; d < rank; ++d) {
      in_a &= index[d] >= a.axes[d].low && index[d] < a.axes[d].high;
      in_b &= index[d] >= b.axes[d].low && index[d] < b.axes[d].high;
      at_a += index[d] * a.axes[d].step;
      at_b += index[d] * b.axes[d].step;
    }
    f(in_a ? at_a : outside, in_b ? at_b : outside);
    for (std::size_t d = rank; d-- > 0;) {
      if (++index[d] < extents[d]) break;
      index[d] = 0;
    }
  }
}

// Conversion between types of one kind, or of several as a cast does.
inline Cell converted(DType from, DType to, const Cell& cell) {
  if (cell.cause != 0 || compute_type(from) == compute_type(to)) return cell;
  return cell_of(ir::convert(compute_type(to), value_of(from, cell)));
}

}  // namespace tegula::interp

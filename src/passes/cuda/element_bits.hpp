// Maps the indices of a loop to bits of the number of a fragment's element, if all extents are powers of two
// except for an odd factor of the first that is not 1 (three warp groups have 192 rows). That factor is the
// number's last digit, after its bits.
//
// An access through a reshaped view, or at a constant distance, then names bits: of x[p, c, q] with extents
// 4, 2 and 8, q is bits 0 to 2 of the element, c is bit 3, p bits 4 and 5. The thread that runs iteration (p,
// q) accesses both elements of c, so bit 3 must number registers.
#pragma once
#include <bit>
#include <optional>
#include <vector>

#include "ir/stmt.hpp"
#include "layout/layout.hpp"

namespace tegula::passes {

inline bool is_power_of_two(std::int64_t x) { return x > 0 && (x & (x - 1)) == 0; }
inline int log2_of(std::int64_t x) { return std::countr_zero(static_cast<std::uint64_t>(x)); }
inline std::int64_t odd_factor(std::int64_t x) { return x >> log2_of(x); }

// A bit of an element's number: of a loop's index, or constant.
struct ElementBit {
  int axis = -1;  // of the loop; -1: constant
  int bit = 0;    // of the index, or the constant itself; one past an index's bits is its odd digit
  friend bool operator==(const ElementBit&, const ElementBit&) = default;
};
using ElementBits = std::vector<ElementBit>;  // from the lowest on, last the odd digit

// Nothing where the access is no such way, or extents are others.
std::optional<ElementBits> element_bits(const ir::For& loop, const ir::Access& access);

// A layout of threads and registers that count bits of an element's number; the odd digit, if registers count
// it, comes last.
struct BitLayout {
  std::vector<int> threads, registers;  // bits, from the fastest on
};
std::optional<BitLayout> bits_of(const layout::Layout& layout);
layout::Layout layout_of(const layout::Coordinates& shape, const BitLayout& bits);

// How the loop's iterations are laid out so that each thread meets its own registers; nothing where the
// constant bits are not all in registers.
std::optional<layout::Layout> loop_layout(const ir::For& loop, const ElementBits& bits,
                                          const BitLayout& held);

}  // namespace tegula::passes

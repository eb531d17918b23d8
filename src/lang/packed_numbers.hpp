// Where a packed number is in its element, how it is decoded there, and how it is encoded.
#pragma once
#include <optional>

#include "tegula/lang/packed.hpp"

namespace tegula::lang {

// The lowest bit of a number in its element, or in the element's high half.
struct PackedPlace {
  Expr bit;
  std::optional<Expr> is_high = {};
  // For as_f32: whether the number is moved to the lowest bits first. Threads whose bits are constants need
  // not; lanes of vectors would compute a power of two for each.
  bool shifts = true;
};
PackedPlace packed_place(PackedType type, const Operand& column);

// The number at that place, in the type of values, or as f32.
Expr packed_number(PackedType type, const Operand& element, const PackedPlace& place);
Expr packed_as_f32(PackedType type, const Operand& element, const PackedPlace& place);

// The lowest bits of the element that holds `value` first: u32 without other bits.
Expr packed_code(PackedType type, const Operand& value);

}  // namespace tegula::lang

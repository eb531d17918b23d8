// A value while a kernel is interpreted: the numbers of ir::Value in half the size, without the type.
#pragma once
#include "ir/arithmetic.hpp"

namespace tegula::interp {

struct Cell {
  union {
    std::int64_t integer = 0;  // of types that are not floating
    double real;               // of floating types; of f32 always a number that f32 can hold
  };
  std::uint32_t cause = 0;  // why the value is invalid (see Machine::cause), 0 if it is valid
};

inline Cell integer_cell(std::int64_t value) {
  Cell cell;
  cell.integer = value;
  return cell;
}
inline Cell real_cell(double value) {
  Cell cell;
  cell.real = value;
  return cell;
}
inline Cell cell_of(const ir::Value& value) {
  return value.type.is_floating() ? real_cell(value.real) : integer_cell(value.integer);
}
inline ir::Value value_of(DType type, const Cell& cell) {
  const DType held = compute_type(type);
  return held.is_floating() ? ir::Value{held, 0, cell.real, cell.cause != 0}
                            : ir::Value{held, cell.integer, 0, cell.cause != 0};
}

}  // namespace tegula::interp

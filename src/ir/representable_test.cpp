// Which types hold the values of which: against all values of the small ones.
#include "ir/representable.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ir/arithmetic.hpp"

namespace tegula::ir {
namespace {

// In memory; u8 computes as an integer.
bool is_natural(DType type) { return type.kind() == Kind::natural || type == u8; }

double value_of(DType type, std::uint64_t bits) {
  if (type.is_floating()) return decode(type, bits);
  if (type.is_boolean()) return static_cast<double>(bits % 2);
  if (is_natural(type)) return static_cast<double>(bits);
  return static_cast<double>(type.bits() == 8 ? static_cast<std::int8_t>(bits)
                                              : static_cast<std::int16_t>(bits));
}

bool holds(DType type, double value) {
  if (type.is_floating()) return std::isnan(value) || round_to(type, value) == value;
  if (std::isnan(value) || std::isinf(value) || value != std::trunc(value)) return false;
  const bool natural = is_natural(type) || type.is_boolean();
  const int digits = type.is_boolean() ? 1 : natural ? type.bits() : type.bits() - 1;
  return value >= (natural ? 0.0 : -std::ldexp(1.0, digits)) && value < std::ldexp(1.0, digits);
}

TEST(Representable, TypesHoldAllValuesOfOthers) {
  for (const DType small : all_dtypes) {
    if (small.bits() > 16) continue;
    for (const DType type : all_dtypes) {
      bool all = true;
      for (std::uint64_t bits = 0; bits < std::uint64_t{1} << small.bits(); ++bits)
        all &= holds(type, value_of(small, bits));
      // Floats without fractions are not looked for.
      const bool expected = all && !(small.is_floating() && !type.is_floating());
      EXPECT_EQ(contains(type, small), expected) << type.name() << " of " << small.name();
    }
  }
}

TEST(Representable, ExpressionsKeepWhatTheirPartsAre) {
  const auto x = std::make_shared<const Variable>(Variable{"x", f32, VariableKind::let, {}}),
             y = std::make_shared<const Variable>(Variable{"y", f32, VariableKind::let, {}});
  const StoredType of_x = [&](const VariablePtr& v) {
    return v == x ? std::optional<DType>(f16) : std::nullopt;
  };
  const Expr a = variable(x), b = variable(y), zero = constant(f32, 0.0), third = constant(f32, 1.0 / 3);
  const Expr condition = make(Op::lt, boolean, {a, b});
  struct Row {
    Expr e;
    bool in_f16, in_bf16;
  };
  const Row rows[] = {
      {a, true, false},
      {b, false, false},
      {zero, true, true},
      {third, false, false},
      {constant(f32, HUGE_VAL), true, true},
      {make(Op::neg, f32, {a}), true, false},
      {make(Op::abs, f32, {a}), true, false},
      {make(Op::max, f32, {a, zero}), true, false},
      {make(Op::min, f32, {a, b}), false, false},
      {make(Op::add, f32, {a, zero}), false, false},
      {make(Op::select, f32, {condition, a, zero}), true, false},
      {make(Op::select, f32, {condition, a, b}), false, false},
      {make(Op::cast, f16, {b}), true, false},
      {make(Op::cast, e4m3, {b}), true, true},
      {make(Op::cast, f64, {a}), true, false},
      {make(Op::cast, bf16, {a}), false, true},
  };
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_EQ(is_representable(rows[i].e, f16, of_x), rows[i].in_f16) << i;
    EXPECT_EQ(is_representable(rows[i].e, bf16, of_x), rows[i].in_bf16) << i;
  }
}

}  // namespace
}  // namespace tegula::ir

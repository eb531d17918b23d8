#include "ir/arithmetic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace tegula::ir {
namespace {

constexpr std::int64_t least32 = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t most32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t least64 = std::numeric_limits<std::int64_t>::min();
constexpr double inf = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

Value run(Op op, DType type, std::vector<Value> args, bool* overflow = nullptr) {
  return apply(op, type, args, overflow);
}

struct IntegerCase {
  Op op;
  DType type;
  std::int64_t a, b, result;
  bool overflow = false;
};

TEST(Arithmetic, IntegersFollowTheTable) {
  const IntegerCase table[] = {
      {Op::add, i32, most32, 1, least32, true},
      {Op::sub, i32, least32, 1, most32, true},
      {Op::mul, i32, 65536, 65536, 0, true},
      {Op::add, i64, std::numeric_limits<std::int64_t>::max(), 1, least64, true},
      {Op::add, u32, 4294967295, 2, 1},
      {Op::sub, u32, 0, 1, 4294967295},
      {Op::mul, u32, 4294967295, 4294967295, 1},
      {Op::div, i32, -7, 2, -3},
      {Op::mod, i32, -7, 2, -1},
      {Op::floordiv, i32, -7, 2, -4},
      {Op::floormod, i32, -7, 2, 1},
      {Op::floormod, i32, 7, -2, -1},
      {Op::floordiv, i32, 7, -2, -4},
      {Op::ceildiv, i32, 7, 2, 4},
      {Op::ceildiv, i32, -7, 2, -3},
      {Op::ceildiv, i32, 8, 2, 4},
      {Op::div, i32, least32, -1, least32},
      {Op::mod, i32, least32, -1, 0},
      {Op::div, i64, least64, -1, least64},
      {Op::div, u32, 4294967295, 2, 2147483647},
      {Op::min, i32, -1, 1, -1},
      {Op::max, u32, 4294967295, 1, 4294967295},
      {Op::bit_and, i32, -1, 12, 12},
      {Op::bit_or, i32, 3, 8, 11},
      {Op::bit_xor, u32, 4294967295, 1, 4294967294},
      {Op::shl, i32, 1, 31, least32},
      {Op::shl, i32, 1, 32, 0},
      {Op::shl, i32, 1, -1, 0},
      {Op::shl, u32, 3, 31, 2147483648},
      {Op::shr, i32, -8, 1, -4},
      {Op::shr, i32, -8, 40, -1},
      {Op::shr, i32, 8, 40, 0},
      {Op::shr, u32, 4294967295, 31, 1},
      {Op::shr, u32, 4294967295, 32, 0},
  };
  for (const auto& [type, a, bits] :
       {std::tuple{i32, std::int64_t{-1}, 32}, {u32, std::int64_t{0xf0f0}, 8}, {i64, std::int64_t{-2}, 63}})
    EXPECT_EQ(run(Op::popcount, type, {{type, a}}).integer, bits);
  for (const IntegerCase& c : table) {
    bool overflow = false;
    const Value result = run(c.op, c.type, {{c.type, c.a}, {c.type, c.b}}, &overflow);
    EXPECT_EQ(result.integer, c.result) << name_of(c.op) << " " << c.a << " " << c.b;
    EXPECT_EQ(overflow, c.overflow) << name_of(c.op) << " " << c.a << " " << c.b;
    EXPECT_TRUE(result.type == c.type);
  }
}

TEST(Arithmetic, DivisionByZeroIsInvalidAndSpreads) {
  for (const Op op : {Op::div, Op::mod, Op::floordiv, Op::floormod, Op::ceildiv}) {
    const Value bad = run(op, i32, {{i32, 1}, {i32, 0}});
    EXPECT_TRUE(bad.invalid);
    EXPECT_TRUE(run(Op::mul, i32, {bad, {i32, 0}}).invalid);
    EXPECT_TRUE(run(Op::lt, boolean, {bad, {i32, 0}}).invalid);
    EXPECT_TRUE(run(Op::cast, f16, {bad}).invalid);
  }
}

TEST(Arithmetic, TheSideThatDoesNotCountIsDropped) {
  const Value yes = truth_value(true), no = truth_value(false), bad = invalid_value(boolean);
  EXPECT_FALSE(run(Op::logical_and, boolean, {no, bad}).invalid);
  EXPECT_TRUE(run(Op::logical_and, boolean, {yes, bad}).invalid);
  EXPECT_TRUE(run(Op::logical_and, boolean, {bad, no}).invalid);
  EXPECT_TRUE(run(Op::logical_or, boolean, {yes, bad}).truth());
  EXPECT_FALSE(run(Op::logical_or, boolean, {yes, bad}).invalid);
  EXPECT_TRUE(run(Op::logical_or, boolean, {no, bad}).invalid);
  const Value four = integer_value(i32, 4);
  EXPECT_EQ(run(Op::select, i32, {yes, four, invalid_value(i32)}).integer, 4);
  EXPECT_TRUE(run(Op::select, i32, {no, four, invalid_value(i32)}).invalid);
  EXPECT_TRUE(run(Op::select, i32, {bad, four, four}).invalid);
}

TEST(Arithmetic, FloatsAreRoundedAfterEveryOperation) {
  const Value third = run(Op::div, f32, {float_value(f32, 1), float_value(f32, 3)});
  EXPECT_EQ(third.real, static_cast<double>(1.0f / 3.0f));
  const Value big = float_value(f32, 16777216);
  EXPECT_EQ(run(Op::add, f32, {big, float_value(f32, 1)}).real, 16777216.0);
  EXPECT_EQ(run(Op::add, f64, {float_value(f64, 16777216), float_value(f64, 1)}).real, 16777217.0);
  // Rounding the product or the f64 sum first would give another result.
  const float a = 0x1.000002p0f, b = 0x1.000002p0f, c = 0x1p-60f;
  EXPECT_EQ(run(Op::fma, f32, {float_value(f32, a), float_value(f32, b), float_value(f32, c)}).real,
            static_cast<double>(std::fma(a, b, c)));
  EXPECT_EQ(run(Op::round, f32, {float_value(f32, 2.5)}).real, 2.0);
  EXPECT_EQ(run(Op::round, f32, {float_value(f32, -3.5)}).real, -4.0);
}

TEST(Arithmetic, MinAndMaxPreferNumbers) {
  const Value none = float_value(f32, nan), one = float_value(f32, 1);
  for (const Op op : {Op::min, Op::max}) {
    EXPECT_EQ(run(op, f32, {none, one}).real, 1.0);
    EXPECT_EQ(run(op, f32, {one, none}).real, 1.0);
    EXPECT_TRUE(std::isnan(run(op, f32, {none, none}).real));
  }
  EXPECT_EQ(run(Op::min, f32, {one, float_value(f32, -inf)}).real, -inf);
}

TEST(Arithmetic, ComparisonsWithNanAreFalseExceptNotEqual) {
  const Value none = float_value(f32, nan), one = float_value(f32, 1);
  for (const Op op : {Op::eq, Op::ne, Op::lt, Op::le, Op::gt, Op::ge}) {
    EXPECT_EQ(run(op, boolean, {none, one}).truth(), op == Op::ne);
    EXPECT_EQ(run(op, boolean, {one, none}).truth(), op == Op::ne);
  }
  EXPECT_TRUE(run(Op::isnan, boolean, {none}).truth());
  EXPECT_FALSE(run(Op::isnan, boolean, {one}).truth());
}

TEST(Arithmetic, CastsFollowTheTable) {
  struct Case {
    DType from;
    double value;
    DType to;
    double result;
  };
  const Case table[] = {
      {f32, 3.99, i32, 3},
      {f32, -3.99, i32, -3},
      {f32, 1e20, i32, 2147483647.0},
      {f32, -1e20, i32, -2147483648.0},
      {f32, nan, i32, 0},
      {f32, inf, i64, 9223372036854775807.0},
      {f32, -5, u32, 0},
      {f32, 5e9, u32, 4294967295.0},
      {f32, 300, i8, 127},
      {f32, -300, i8, -128},
      {f32, 300, u8, 255},
      {f32, -1, u8, 0},
      {f64, 0.1, f32, 0.1f},
      {i32, 300, i8, 44},
      {i32, -1, u8, 255},
      {i32, -1, u32, 4294967295.0},
      {i32, 16777217, f32, 16777216},
      {i32, 5, boolean, 1},
      {f32, nan, boolean, 1},
      {f32, 0, boolean, 0},
      {boolean, 1, f32, 1},
      {boolean, 1, i32, 1},
      {f32, 1.0009765625f / 2, bf16, 0.5},
      {f32, 2049, f16, 2048},
      {f32, 1000, e4m3, 448},
      {f32, inf, e5m2, 57344},
      {i32, 65536, i16, 0},
      {i32, 100000, i16, -31072},
  };
  for (const Case& c : table) {
    const Value value = c.from.is_floating() ? float_value(c.from, c.value)
                                             : integer_value(c.from, static_cast<std::int64_t>(c.value));
    const Value result = run(Op::cast, c.to, {value});
    EXPECT_TRUE(result.type == compute_type(c.to));
    const double number = result.type.is_floating() ? result.real : static_cast<double>(result.integer);
    EXPECT_EQ(number, c.result) << c.from.name() << " " << c.value << " to " << c.to.name();
  }
}

TEST(Arithmetic, BitcastKeepsBits) {
  EXPECT_EQ(run(Op::bitcast, u32, {float_value(f32, -1)}).integer, 0xbf800000);
  EXPECT_EQ(run(Op::bitcast, i32, {float_value(f32, -1)}).integer, static_cast<std::int32_t>(0xbf800000));
  EXPECT_EQ(run(Op::bitcast, f32, {integer_value(u32, 0x3f800000)}).real, 1.0);
  EXPECT_EQ(run(Op::bitcast, f32, {integer_value(i32, 0x3f800000)}).real, 1.0);
  EXPECT_EQ(run(Op::bitcast, u32, {integer_value(i32, -1)}).integer, 4294967295);
  EXPECT_EQ(run(Op::bitcast, i64, {float_value(f64, 1)}).integer, 0x3ff0000000000000);
  EXPECT_EQ(run(Op::bitcast, f64, {integer_value(i64, 0x3ff0000000000000)}).real, 1.0);
}

TEST(Arithmetic, EvaluatesSharedExpressionsOnce) {
  const auto x = std::make_shared<const Variable>(Variable{"x", u32, VariableKind::let, {}});
  Expr e = variable(x);
  for (int i = 0; i < 60; ++i) e = make(Op::add, u32, {e, e});
  EXPECT_EQ(e->size, std::numeric_limits<int>::max());
  const Value result = evaluate(e, [](const VariablePtr&) { return integer_value(u32, 3); });
  EXPECT_EQ(result.integer, 0);
}

}  // namespace
}  // namespace tegula::ir

#include "ir/expr.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "ir/ir.hpp"

namespace tegula::ir {
namespace {

VariablePtr scalar_named(const char* name, DType type = i32) {
  return std::make_shared<const Variable>(Variable{name, type, VariableKind::scalar, {}});
}

TEST(Expr, EveryOperationHasItsOwnName) {
  std::set<std::string_view> names, symbols;
  int with_symbol = 0;
  for (int i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_TRUE(names.insert(name_of(op)).second) << name_of(op);
    if (symbol_of(op).empty()) continue;
    ++with_symbol;
    EXPECT_EQ(arity_of(op), 2);
    EXPECT_TRUE(symbols.insert(symbol_of(op)).second) << symbol_of(op);
  }
  EXPECT_EQ(with_symbol, 18);
}

TEST(Expr, ConstantsAreNormalised) {
  EXPECT_EQ(constant(u32, -1)->integer, 4294967295);
  EXPECT_EQ(constant(i32, std::int64_t{1} << 32)->integer, 0);
  EXPECT_EQ(constant(boolean, 7)->integer, 1);
  EXPECT_EQ(constant(f32, 0.1)->real, static_cast<double>(0.1f));
  EXPECT_EQ(constant(f64, 0.1)->real, 0.1);
  EXPECT_EQ(constant(f32, 3)->real, 3.0);
  EXPECT_TRUE(constant(f16, 0.1)->type == f32);
  EXPECT_TRUE(is_constant(truth(true), 1));
  EXPECT_FALSE(is_constant(constant(f32, 1.0), 1));
  EXPECT_EQ(constant_value(int32(-5)), -5);
  EXPECT_THROW(constant_value(constant(f32, 1.0)), InternalError);
  EXPECT_THROW(constant_value(variable(scalar_named("x"))), InternalError);
  EXPECT_THROW(make(Op::add, i32, {int32(1)}), InternalError);
}

TEST(Expr, SizeCountsTheTree) {
  const Expr x = variable(scalar_named("x"));
  const Expr sum = make(Op::add, i32, {x, x});
  EXPECT_EQ(sum->size, 3);
  EXPECT_EQ(make(Op::mul, i32, {sum, sum})->size, 7);
}

TEST(Expr, ListsAreEqualPlaceByPlace) {
  using List = std::vector<Expr>;
  const Expr x = variable(scalar_named("x")), one = int32(1);
  EXPECT_TRUE(equal(List{x, int32(1)}, List{x, one}));
  EXPECT_TRUE(equal(List{}, List{}));
  EXPECT_FALSE(equal(List{x, one}, List{one, x}));
  EXPECT_FALSE(equal(List{x, one}, List{x}));
  EXPECT_FALSE(equal(List{x}, List{x, one}));
}

TEST(Expr, EqualityIsStructural) {
  const VariablePtr x = scalar_named("x"), other = scalar_named("x");
  const auto make_sum = [](const VariablePtr& v) { return make(Op::add, i32, {variable(v), int32(1)}); };
  EXPECT_TRUE(equal(make_sum(x), make_sum(x)));
  EXPECT_FALSE(equal(make_sum(x), make_sum(other)));
  EXPECT_FALSE(equal(int32(1), constant(i64, 1)));
  EXPECT_FALSE(equal(constant(f32, 0.0), constant(f32, -0.0)));
  EXPECT_TRUE(equal(constant(f32, std::nan("")), constant(f32, std::nan(""))));
}

TEST(Expr, EqualityOfSharedExpressionsIsFast) {
  const VariablePtr x = scalar_named("x");
  const auto tower = [&] {
    Expr e = variable(x);
    for (int i = 0; i < 200; ++i) e = make(Op::add, i32, {e, e});
    return e;
  };
  EXPECT_TRUE(equal(tower(), tower()));
}

TEST(View, WholeBuffer) {
  const auto tile = std::make_shared<const Buffer>(
      Buffer{"t", Space::shared, Role::tile, f16, {int32(4), int32(8)}, false, {}});
  View view = whole(tile);
  EXPECT_TRUE(is_whole(view));
  EXPECT_EQ(view.extent(1), 8);
  EXPECT_EQ(tile->elements(), 32);
  const Expr x = variable(scalar_named("x")), y = variable(scalar_named("y"));
  EXPECT_TRUE(equal(coordinates({view, {x, y}})[1], y));
  std::swap(view.dims[0].axis, view.dims[1].axis);
  std::swap(view.extents[0], view.extents[1]);
  EXPECT_FALSE(is_whole(view));
  EXPECT_TRUE(equal(coordinates({view, {x, y}})[0], y));
  view.dims[1] = {int32(3), nullptr, nullptr, 0};
  EXPECT_TRUE(equal(coordinates({view, {x, y}})[1], make(Op::add, i32, {int32(3), x})));
  view.dims[1].axis = -1;
  EXPECT_TRUE(is_constant(coordinates({view, {x, y}})[1], 3));
}

TEST(Stmt, NamesOfKinds) {
  EXPECT_EQ(name_of(AtomicOp::bit_or), "bit_or");
  EXPECT_EQ(name_of(ReduceOp::absmax), "absmax");
  EXPECT_EQ(name_of(LoopKind::pipelined), "pipelined");
}

}  // namespace
}  // namespace tegula::ir

// Random expressions with random values of their variables, for tests.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>

#include "ir/arithmetic.hpp"
#include "ir/bounds.hpp"
#include "ir/testing/nodes.hpp"

namespace tegula::ir::testing {

// What a variable of the test can be: an integer in a range and a multiple of something, or any float.
struct TestVariable {
  VariablePtr variable;
  Interval range;
  std::int64_t multiple = 1;
};

class RandomExprs {
 public:
  explicit RandomExprs(std::uint64_t seed) : random_(seed) {
    add("a", i32, {0, 7});
    add("b", i32, {-5, 5});
    add("c", i32, {INT32_MIN, INT32_MAX});
    add("d", i32, {0, 63});
    add("N", i32, {0, 400}, 8, VariableKind::dim);
    add("w", i64, {-1000, 1000});
    add("u", u32, {0, UINT32_MAX});
    add("s", u32, {0, 20});
    add("p", boolean, {0, 1});
    add("x", f32, {});
    add("y", f64, {});
  }

  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  Facts facts(Overflow overflow = Overflow::is_error) const {
    Facts result(overflow);
    for (const TestVariable& v : variables_) {
      if (v.variable->type.is_floating()) continue;
      result.add_range(v.variable, v.range);
      result.add_multiple(v.variable, v.multiple);
    }
    return result;
  }

  Lookup assignment() {
    std::unordered_map<VariablePtr, Value> values;
    for (const TestVariable& v : variables_) values[v.variable] = value(v);
    return [values](const VariablePtr& v) { return values.at(v); };
  }

  DType type() {
    constexpr DType types[] = {i32, i32, i32, i32, i64, u32, boolean, boolean, f32, f64};
    return types[number(0, 9)];
  }

  Expr expr(DType type, int depth) {
    if (depth == 0 || number(0, 9) == 0) return leaf(type);
    if (number(0, 7) == 0)
      return make(Op::select, type, {expr(boolean, depth - 1), expr(type, depth - 1), expr(type, depth - 1)});
    if (number(0, 9) == 0) return converted(type, depth - 1);
    if (type.is_boolean()) return condition(depth);
    return type.is_floating() ? of_floats(type, depth - 1) : of_integers(type, depth - 1);
  }

 private:
  void add(const char* name, DType type, Interval range, std::int64_t multiple = 1,
           VariableKind kind = VariableKind::index) {
    variables_.push_back({named(name, kind, type), range, multiple});
  }

  Value value(const TestVariable& v) {
    const DType type = v.variable->type;
    if (type.is_floating()) {
      constexpr double special[] = {0.0, -0.0, 1.0, -1.0, 0.5, INFINITY, -INFINITY, NAN, 1e30, 3.75};
      return float_value(
          type, number(0, 2) != 0 ? special[number(0, 9)] : static_cast<double>(number(-5000, 5000)) / 16);
    }
    // Often near the ends, where rules go wrong.
    const std::int64_t low = v.range.low / v.multiple, high = v.range.high / v.multiple;
    std::int64_t n = number(low, high);
    if (number(0, 3) == 0) n = std::clamp(number(-3, 3), low, high);
    if (number(0, 7) == 0) n = number(0, 1) == 0 ? low : high;
    return integer_value(type, n * v.multiple);
  }

  Expr leaf(DType type) {
    std::vector<VariablePtr> fitting;
    for (const TestVariable& v : variables_) {
      if (v.variable->type == type) fitting.push_back(v.variable);
    }
    if (number(0, 2) != 0)
      return variable(
          fitting[static_cast<std::size_t>(number(0, static_cast<std::int64_t>(fitting.size()) - 1))]);
    if (type.is_floating()) return constant(type, static_cast<double>(number(-4, 4)) / 2);
    constexpr int often[] = {0, 1, 2, 3, 4, 8, 16, 64, -1, -8};
    return constant(type, type.is_boolean() ? static_cast<int>(number(0, 1)) : often[number(0, 9)]);
  }

  Expr converted(DType type, int depth) {
    DType from = this->type();
    if (number(0, 1) == 0) from = type;
    if ((type == i32 || type == u32 || type == f32) && number(0, 4) == 0) {
      constexpr DType same_width[] = {i32, u32, f32};
      return make(Op::bitcast, type, {expr(same_width[number(0, 2)], depth)});
    }
    const Expr x = expr(from, depth);
    if (type.is_boolean() || number(0, 2) != 0) return make(Op::cast, type, {x});
    if (type == f32) return make(Op::cast, number(0, 1) == 0 ? bf16 : e4m3, {x});
    if (type == i32) {
      constexpr DType narrower[] = {i8, i16, u8};
      return make(Op::cast, narrower[number(0, 2)], {x});
    }
    return make(Op::cast, type, {x});
  }

  Expr condition(int depth) {
    const int inner = depth - 1;
    if (number(0, 3) == 0) {
      constexpr Op ops[] = {Op::logical_and, Op::logical_or};
      return make(ops[number(0, 1)], boolean, {expr(boolean, inner), expr(boolean, inner)});
    }
    if (number(0, 5) == 0) return make(Op::logical_not, boolean, {expr(boolean, inner)});
    DType type = this->type();
    const bool ordered = !type.is_boolean();
    const Op op = static_cast<Op>(static_cast<int>(Op::eq) + number(0, ordered ? 5 : 1));
    return make(op, boolean, {expr(type, inner), expr(type, inner)});
  }

  Expr of_integers(DType type, int depth) {
    constexpr Op ops[] = {Op::add, Op::add,      Op::sub,      Op::sub,     Op::mul,     Op::div,
                          Op::mod, Op::floordiv, Op::floormod, Op::ceildiv, Op::min,     Op::max,
                          Op::add, Op::mul,      Op::bit_and,  Op::bit_or,  Op::bit_xor, Op::shl,
                          Op::shr, Op::neg,      Op::abs,      Op::bit_not, Op::popcount};
    const Op op = ops[number(0, std::ssize(ops) - 1)];
    const Expr a = expr(type, depth);
    if (arity_of(op) == 1) return make(op, type, {a});
    const bool by_constant = number(0, 1) == 0 && (op == Op::mul || (op >= Op::div && op <= Op::max));
    constexpr int divisors[] = {1, 2, 3, 4, 8, 16, 64, 128};
    return make(op, type, {a, by_constant ? constant(type, divisors[number(0, 7)]) : expr(type, depth)});
  }

  Expr of_floats(DType type, int depth) {
    constexpr Op ops[] = {Op::add, Op::sub, Op::mul,  Op::div,  Op::min,   Op::max,  Op::neg,
                          Op::abs, Op::fma, Op::exp2, Op::sqrt, Op::round, Op::floor};
    const Op op = ops[number(0, std::ssize(ops) - 1)];
    std::vector<Expr> args;
    for (int k = 0; k < arity_of(op); ++k) args.push_back(expr(type, depth));
    return make(op, type, std::move(args));
  }

  std::mt19937_64 random_;
  std::vector<TestVariable> variables_;
};

}  // namespace tegula::ir::testing

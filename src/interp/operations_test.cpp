// The operations with a function of their own agree with ir::apply.
#include "interp/operations.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "interp/machine.hpp"
#include "ir/ir.hpp"
#include "tegula/error.hpp"

namespace operations_test {

using namespace tegula;
using namespace tegula::interp;
using ir::Op;

std::vector<Cell> samples(DType type) {
  std::vector<Cell> cells;
  if (type.is_floating()) {
    for (const double x : {0.0, -0.0, 1.0, -2.5, 3e38, -1e-40, 0.1, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
      cells.push_back(real_cell(static_cast<float>(x)));
    }
  } else if (type.is_boolean()) {
    cells = {integer_cell(0), integer_cell(1)};
  } else {
    const bool natural = type == u32;
    for (const std::int64_t x : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{46341},
                                 natural ? 4294967295 : std::int64_t{-3}, std::int64_t{2147483647},
                                 natural ? 2147483648 : -2147483648}) {
      cells.push_back(integer_cell(x));
    }
  }
  cells.emplace_back();
  cells.back().cause = 1;
  return cells;
}

// The result, or nothing if it overflows.
struct Outcome {
  bool overflow = false;
  ir::Value value;
};

class Comparison {
 public:
  explicit Comparison(const ir::Expr& e) : e_(e) {
    auto kernel = std::make_shared<ir::Kernel>();
    kernel->name = "operations";
    program_.signature = std::make_shared<const Signature>(kernel);
    program_.registers.resize(4);
  }
  Outcome run(bool generic, const std::array<Cell, 3>& args) {
    Machine machine(program_, Binding{}, RunOptions{});
    for (Register r = 0; r < 3; ++r) machine[r] = args[r];
    const Instruction instruction{generic ? apply_generic : operation_for(*e_), 3, 0, 1, 2, e_.get()};
    try {
      instruction.run(instruction, machine);
    } catch (const ProgramError&) { return {true, {}}; }
    return {false, value_of(e_->type, machine[3])};
  }
  void check(const std::array<Cell, 3>& args) {
    const Outcome a = run(false, args), b = run(true, args);
    ASSERT_EQ(a.overflow, b.overflow) << name_of(e_->op);
    ASSERT_EQ(a.value.invalid, b.value.invalid) << name_of(e_->op);
    if (a.overflow || a.value.invalid) return;
    const bool both_nan = std::isnan(a.value.real) && std::isnan(b.value.real);
    ASSERT_TRUE(both_nan || identical(a.value, b.value))
        << name_of(e_->op) << ": " << a.value.real << " " << b.value.real;
  }

 private:
  ir::Expr e_;
  Program program_;
};

ir::Expr leaf(DType type) {
  return ir::variable(std::make_shared<const ir::Variable>(
      ir::Variable{"x", type, ir::VariableKind::let, tegula::Loc::current()}));
}

void check_all(const ir::Expr& e) {
  Comparison comparison(e);
  std::array<std::vector<Cell>, 3> values;
  for (std::size_t i = 0; i < 3; ++i) {
    values[i] = i < e->args.size() ? samples(e->args[i]->held()) : std::vector<Cell>(1);
  }
  for (const Cell& a : values[0]) {
    for (const Cell& b : values[1]) {
      for (const Cell& c : values[2]) comparison.check({a, b, c});
    }
  }
}

TEST(Operations, AgreeWithTheSharedArithmetic) {
  for (const DType type : {f32, i32, u32}) {
    for (const Op op : {Op::add, Op::sub, Op::mul, Op::min, Op::max}) {
      check_all(ir::make(op, type, {leaf(type), leaf(type)}));
    }
    for (const Op op : {Op::eq, Op::ne, Op::lt, Op::le, Op::gt, Op::ge}) {
      check_all(ir::make(op, boolean, {leaf(type), leaf(type)}));
    }
    check_all(ir::make(Op::select, type, {leaf(boolean), leaf(type), leaf(type)}));
  }
  for (const DType type : {i32, u32})
    for (const Op op : {Op::bit_and, Op::bit_or, Op::bit_xor, Op::shl, Op::shr, Op::div, Op::mod,
                        Op::floordiv, Op::floormod, Op::ceildiv, Op::neg, Op::bit_not}) {
      const bool unary = op == Op::neg || op == Op::bit_not;
      check_all(ir::make(op, type, unary ? std::vector{leaf(type)} : std::vector{leaf(type), leaf(type)}));
    }
  for (const DType from : {boolean, i32, u32, i64, f32})
    for (const DType to : {boolean, i8, u8, i32, u32, i64, e4m3, f16, bf16, f32, f64})
      check_all(ir::make(Op::cast, to, {leaf(from)}));
  check_all(ir::make(Op::div, f32, {leaf(f32), leaf(f32)}));
  check_all(ir::make(Op::neg, f32, {leaf(f32)}));
  check_all(ir::make(Op::fma, f32, {leaf(f32), leaf(f32), leaf(f32)}));
  for (const Op op : {Op::exp, Op::exp2}) check_all(ir::make(op, f32, {leaf(f32)}));
  for (const Op op : {Op::logical_and, Op::logical_or}) {
    check_all(ir::make(op, boolean, {leaf(boolean), leaf(boolean)}));
  }
  check_all(ir::make(Op::logical_not, boolean, {leaf(boolean)}));
}

}  // namespace

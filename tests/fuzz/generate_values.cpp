// Random expressions, with the loads and lets that they need.
#include <algorithm>
#include <cmath>

#include "fuzz/generator.hpp"
#include "ir/bounds.hpp"

namespace tegula::fuzz {

using namespace ir;

VariablePtr Generator::variable(const char* prefix, DType type, VariableKind kind, const Nature& nature) {
  auto v = std::make_shared<const Variable>(
      Variable{std::string(prefix) + std::to_string(next_name_++), type, kind, Loc()});
  program_.contracts.variables[v.get()] = nature;
  return v;
}

Value Generator::named(const Value& x) {
  const VariablePtr v = variable("t", x.e->held(), VariableKind::let, x.nature);
  emit(Let{v, x.e});
  scalars_.push_back({v, x.nature});
  return value_of(v);
}

Value Generator::read_variable(const MutablePlace& place) {
  const VariablePtr v = variable("now", place.variable->type, VariableKind::let, place.contract);
  emit(Let{v, ir::variable(place.variable)});
  scalars_.push_back({v, place.contract});
  return value_of(v);
}

Value Generator::constant(DType type) {
  Expr e;
  if (type.is_boolean()) {
    e = truth(random_.chance(50));
  } else if (type.is_floating()) {
    const double special[] = {INFINITY, -INFINITY, NAN,   -0.0, 1e30, 0.1,
                              1e-40,    -3e-39,    65520, 448,  1e9,  1.0 / 3};
    e = ir::constant(type, random_.chance(25) ? random_.pick_from(special) : random_.number(-16, 16) / 4.0);
  } else {
    const Interval all = values_of(type);
    const std::int64_t special[] = {all.low, all.high, 31, 32, 100, 255, 256, all.high / 2, all.low + 1};
    const std::int64_t least = type == u32 ? 0 : -4;
    e = ir::constant(type, random_.chance(15) ? random_.pick_from(special) : random_.between(least, 9));
  }
  return {e, of_constant(*e)};
}

Value Generator::checked(Op op, DType type, std::vector<Value> args) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::vector<Expr> operands;
    std::vector<Nature> natures;
    for (const Value& arg : args) {
      operands.push_back(arg.e);
      natures.push_back(arg.nature);
    }
    const Expr e = make(op, type, operands);
    const Result result = result_of(*e, natures);
    if (!result.may_overflow && !result.may_be_invalid && !result.diverges) return {e, result.nature};
    const bool divides = op >= Op::div && op <= Op::ceildiv;
    for (std::size_t i = 0; i < args.size(); ++i)
      args[i] = divides && i == 1 && type.is_integer() ? within(args[i], 1, 9) : small(args[i]);
  }
  return args[0].e->held() == type ? args[0] : constant(type);
}

// A value that can be computed with further.
Value Generator::small(const Value& x) {
  const DType type = x.e->held();
  if (type.is_integer()) return within(x, type == u32 ? 0 : -40, 40);
  if (!type.is_floating() || !x.nature.product) return x;
  if (type == f32) return checked(Op::cast, random_.pick({bf16, f16}), {x});
  return checked(Op::cast, f64, {checked(Op::cast, f32, {x})});
}

Value Generator::within(const Value& x, std::int64_t low, std::int64_t high) {
  if (low <= x.nature.low && x.nature.high <= high) return x;
  const DType type = x.e->held();
  const auto number = [&](std::int64_t n) { return Value{ir::constant(type, n), integers(n, n)}; };
  const std::int64_t width = high - low + 1;
  if (low == 0 && (width & (width - 1)) == 0 && random_.chance(50))
    return {make(Op::bit_and, type, {x.e, ir::constant(type, high)}), integers(0, high)};
  if (width > 1 && width < 1'000'000 && random_.chance(60)) {
    const Value remainder{make(Op::floormod, type, {x.e, ir::constant(type, width)}), integers(0, width - 1)};
    return low == 0 ? remainder : checked(Op::add, type, {remainder, number(low)});
  }
  return checked(Op::min, type, {checked(Op::max, type, {x, number(low)}), number(high)});
}

Value Generator::leaf(DType type) {
  const int choice = random_.number(0, 9);
  if (choice < 4) {
    std::vector<Scalar> fitting;
    for (const Scalar& s : scalars_) {
      if (s.variable->type == type && s.nature.is_exact()) fitting.push_back(s);
    }
    if (!fitting.empty()) return value_of(random_.pick_from(fitting).variable);
  }
  if (choice < 6) {
    std::vector<MutablePlace> fitting;
    for (const MutablePlace& v : variables_) {
      if (v.variable->type == type && v.contract.is_exact()) fitting.push_back(v);
    }
    if (!fitting.empty()) return read_variable(random_.pick_from(fitting));
  }
  if (choice < 9) {
    if (const auto loaded = random_.chance(15) ? guarded_load(type) : load(type)) return *loaded;
  }
  return constant(type);
}

Value Generator::value(DType type, int depth) {
  depth = std::min(depth, limits_.depth);
  if (depth <= 0 || random_.chance(15)) return leaf(type);
  Value result = operation(type, depth - 1);
  return random_.chance(20) ? named(result) : result;
}

Value Generator::operation(DType type, int depth) {
  if (random_.chance(12))
    return checked(Op::select, type, {value(boolean, depth), value(type, depth), value(type, depth)});
  if (random_.chance(14)) return conversion(type, depth);
  if (type.is_boolean()) return truth_value(depth);
  return type.is_floating() ? float_operation(type, depth) : integer_operation(type, depth);
}

Value Generator::integer_operation(DType type, int depth) {
  constexpr Op ops[] = {Op::add,      Op::add, Op::sub, Op::mul,     Op::div,      Op::mod,    Op::floordiv,
                        Op::floormod, Op::min, Op::max, Op::bit_and, Op::shl,      Op::shr,    Op::bit_or,
                        Op::bit_xor,  Op::neg, Op::abs, Op::bit_not, Op::popcount, Op::ceildiv};
  if (type == i32 && random_.chance(4)) return byte_products_of_words(depth);
  const Op op = type == u32 && random_.chance(5) ? Op::mul_high : random_.pick_from(ops);
  if (op >= Op::div && op <= Op::ceildiv && random_.chance(25)) return guarded_division(op, type, depth);
  std::vector<Value> args{value(type, depth)};
  if (arity_of(op) == 2) {
    const bool shift = op == Op::shl || op == Op::shr;
    args.push_back(shift && random_.chance(80) ? within(value(type, 0), 0, 5) : value(type, depth));
  }
  return checked(op, type, std::move(args));
}

// Products of bytes of two words, summed: of all four, which processors have an instruction for, or some.
Value Generator::byte_products_of_words(int depth) {
  const Value a = value(u32, depth), b = value(u32, depth);
  const auto byte = [](const Value& word, DType type, std::int64_t index) {
    Expr moved = index == 0 ? word.e : make(Op::shr, u32, {word.e, ir::constant(u32, 8 * index)});
    return make(Op::cast, i32, {make(Op::cast, type, {moved})});
  };
  std::int64_t most = 1000;
  Value sum = within(value(i32, 0), -most, most);
  const std::int64_t bytes = random_.pick({4, 4, 4, 3});
  for (std::int64_t i = 0; i < bytes; ++i) {
    most += 255 * 128;
    sum = {make(Op::add, i32, {sum.e, make(Op::mul, i32, {byte(a, u8, i), byte(b, i8, i)})}),
           integers(-most, most)};
    if (random_.chance(20)) sum = named(sum);
  }
  return sum;
}

// Divides by what may be zero, and drops the result where it is.
Value Generator::guarded_division(Op op, DType type, int depth) {
  const Value a = small(value(type, depth)), b = small(value(type, depth)), c = small(value(type, 0));
  const Expr quotient = make(op, type, {a.e, b.e}), zero = ir::constant(type, 0);
  const Nature nature = type == u32 ? anything(u32) : integers(-80, 80);
  return named({make(Op::select, type, {make(Op::ne, boolean, {b.e, zero}), quotient, c.e}),
                join(nature, c.nature, type)});
}

Value Generator::float_operation(DType type, int depth) {
  constexpr Op ops[] = {Op::add, Op::add, Op::sub, Op::mul, Op::mul,   Op::div,   Op::min,
                        Op::max, Op::neg, Op::abs, Op::fma, Op::round, Op::floor, Op::ceil};
  const Op op = random_.pick_from(ops);
  std::vector<Value> args;
  for (int i = 0; i < arity_of(op); ++i) args.push_back(value(type, depth));
  return checked(op, type, std::move(args));
}

Value Generator::truth_value(int depth) {
  if (random_.chance(25))
    return checked(random_.pick({Op::logical_and, Op::logical_or}), boolean,
                   {value(boolean, depth), value(boolean, depth)});
  if (random_.chance(15)) return checked(Op::logical_not, boolean, {value(boolean, depth)});
  if (random_.chance(10)) return checked(Op::isnan, boolean, {value(random_.pick({f32, f32, f64}), depth)});
  const DType type = random_.pick({i32, i32, f32, f32, u32, i64, f64, boolean});
  const int last = static_cast<int>(type.is_boolean() ? Op::ne : Op::ge);
  const Op op = static_cast<Op>(random_.number(static_cast<int>(Op::eq), last));
  return checked(op, boolean, {value(type, depth), value(type, depth)});
}

Value Generator::conversion(DType type, int depth) {
  if (type.bits() >= 32 && random_.chance(15)) {
    const DType from = type.bits() == 64 ? random_.pick({f64, i64}) : random_.pick({i32, u32, f32});
    return checked(Op::bitcast, type, {value(from, depth)});
  }
  const Value x = value(random_.pick({i32, f32, u32, i64, f64, boolean, type}), depth);
  DType to = type;
  if (type == f32) to = random_.pick({f32, f32, f16, bf16, e4m3, e5m2});
  if (type == i32) to = random_.pick({i32, i32, i8, i16, u8});
  return checked(Op::cast, to, {x});
}

// The result of an elementary function, and what may be done with one.
Value Generator::inexact_value(DType type, int depth) {
  constexpr Op functions[] = {Op::exp, Op::exp2, Op::log, Op::log2, Op::sqrt, Op::rsqrt,
                              Op::rcp, Op::tanh, Op::sin, Op::cos,  Op::erf};
  Value x = checked(random_.pick_from(functions), type, {value(type, depth)});
  if (random_.chance(20)) x = checked(random_.pick({Op::neg, Op::abs}), type, {x});
  if (random_.chance(20)) x = checked(random_.pick({Op::min, Op::max}), type, {x, value(type, 0)});
  if (random_.chance(20)) x = checked(Op::select, type, {value(boolean, depth), x, value(type, 0)});
  return x;
}

Value Generator::matching(DType type, const Nature& contract, int depth) {
  const DType held = compute_type(type);
  if (!contract.is_exact() && random_.chance(70)) {
    const Value x = inexact_value(held, depth);
    if (fits(x.nature, contract, type)) return x;
  }
  return coerced(value(held, depth), type, contract);
}

Value Generator::coerced(const Value& x, DType type, const Nature& contract) {
  if (fits(x.nature, contract, type)) return x;
  if (!type.is_floating()) return within(x, contract.low, contract.high);
  if (x.nature.is_exact() && !contract.dyadic) {
    const Value y = small(x);
    if (fits(y.nature, contract, type)) return y;
  }
  const int step = contract.dyadic ? contract.step : -1;
  const auto most = static_cast<std::int64_t>(std::ldexp(contract.dyadic ? contract.bound : 4, -step));
  if (!x.nature.is_exact() || most < 1) return {ir::constant(x.e->held(), 0), dyadic(0, 0)};
  // By way of an integer.
  const Value n = within(checked(Op::cast, i32, {x}), -most, most);
  const Expr unit = ir::constant(x.e->held(), std::ldexp(1.0, step));
  return checked(Op::mul, x.e->held(), {checked(Op::cast, x.e->held(), {n}), {unit, of_constant(*unit)}});
}

}  // namespace tegula::fuzz

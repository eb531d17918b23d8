#include "ir/arithmetic.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "ir/wide.hpp"

namespace tegula::ir {
namespace {

std::int64_t wrap(DType type, Wide number) {
  switch (type.code) {
    case TypeCode::boolean:
      return number != 0;
    case TypeCode::i8:
      return static_cast<std::int8_t>(number);
    case TypeCode::i16:
      return static_cast<std::int16_t>(number);
    case TypeCode::i32:
      return static_cast<std::int32_t>(number);
    case TypeCode::i64:
      return static_cast<std::int64_t>(number);
    case TypeCode::u8:
      return static_cast<std::uint8_t>(number);
    case TypeCode::u32:
      return static_cast<std::uint32_t>(number);
    default:
      throw InternalError("a float is treated as an integer");
  }
}

double rounded(DType type, double number) {
  return type == f64 ? number : static_cast<double>(static_cast<float>(number));
}

Value wrapped(DType type, Wide number, bool* overflow) {
  const Value result{type, wrap(type, number)};
  if (overflow != nullptr && type.kind() == Kind::integer && result.integer != number) *overflow = true;
  return result;
}

std::int64_t float_to_integer(DType type, double number) {
  if (std::isnan(number)) return 0;
  const bool is_signed = !type.is_unsigned();
  const double end = std::ldexp(1.0, is_signed ? type.bits() - 1 : type.bits());
  const double begin = is_signed ? -end : 0;
  const double whole = std::trunc(number);
  if (whole >= end)
    return static_cast<std::int64_t>((Wide{1} << (is_signed ? type.bits() - 1 : type.bits())) - 1);
  if (whole <= begin) return static_cast<std::int64_t>(begin);
  return static_cast<std::int64_t>(whole);
}

double integer_to_float(DType type, std::int64_t number) {
  return type == f64 ? static_cast<double>(number) : static_cast<double>(static_cast<float>(number));
}

Value shift(Op op, DType type, std::int64_t a, std::int64_t count) {
  const bool outside = count < 0 || count >= type.bits();
  if (op == Op::shl) return {type, outside ? 0 : wrap(type, static_cast<Wide>(a) << count)};
  if (outside) return {type, a < 0 ? -1 : 0};
  return {type, a >> count};
}

Value divide(Op op, DType type, Wide a, Wide b) {
  if (b == 0) return invalid_value(type);
  switch (op) {
    case Op::div:
      return {type, wrap(type, a / b)};
    case Op::mod:
      return {type, wrap(type, a % b)};
    case Op::floordiv:
      return {type, wrap(type, floor_quotient(a, b))};
    case Op::floormod:
      return {type, wrap(type, a - b * floor_quotient(a, b))};
    default:
      return {type, wrap(type, -floor_quotient(-a, b))};
  }
}

Value integer_op(Op op, DType type, std::span<const Value> args, bool* overflow) {
  const Wide a = args[0].integer, b = args.size() > 1 ? args[1].integer : 0;
  switch (op) {
    case Op::add:
      return wrapped(type, a + b, overflow);
    case Op::sub:
      return wrapped(type, a - b, overflow);
    case Op::mul:
      return wrapped(type, a * b, overflow);
    case Op::neg:
      return wrapped(type, -a, overflow);
    case Op::abs:
      return wrapped(type, a < 0 ? -a : a, overflow);
    case Op::div:
    case Op::mod:
    case Op::floordiv:
    case Op::floormod:
    case Op::ceildiv:
      return divide(op, type, a, b);
    case Op::min:
      return {type, wrap(type, std::min(a, b))};
    case Op::max:
      return {type, wrap(type, std::max(a, b))};
    case Op::bit_and:
      return {type, wrap(type, a & b)};
    case Op::bit_or:
      return {type, wrap(type, a | b)};
    case Op::bit_xor:
      return {type, wrap(type, a ^ b)};
    case Op::bit_not:
      return {type, type.is_boolean() ? static_cast<std::int64_t>(a == 0) : wrap(type, ~a)};
    case Op::popcount:
      return {type, std::popcount(static_cast<std::uint64_t>(a) & (~std::uint64_t{0} >> (64 - type.bits())))};
    case Op::mul_high:
      return {type, static_cast<std::int64_t>(
                        (static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b)) >> 32)};
    case Op::shl:
    case Op::shr:
      return shift(op, type, args[0].integer, args[1].integer);
    default:
      throw InternalError("an operation does not exist for integers");
  }
}

double float_modulus(double a, double b) {
  const double remainder = std::fmod(a, b);
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double lesser(double a, double b) { return std::isnan(b) || a < b ? a : b; }
double greater(double a, double b) { return std::isnan(b) || a > b ? a : b; }

double float_function(Op op, double a) {
  switch (op) {
    case Op::neg:
      return -a;
    case Op::abs:
      return std::fabs(a);
    case Op::exp:
      return std::exp(a);
    case Op::exp2:
      return std::exp2(a);
    case Op::log:
      return std::log(a);
    case Op::log2:
      return std::log2(a);
    case Op::sqrt:
      return std::sqrt(a);
    case Op::rsqrt:
      return 1 / std::sqrt(a);
    case Op::rcp:
      return 1 / a;
    case Op::tanh:
      return std::tanh(a);
    case Op::sin:
      return std::sin(a);
    case Op::cos:
      return std::cos(a);
    case Op::erf:
      return std::erf(a);
    case Op::round:
      return std::nearbyint(a);
    case Op::floor:
      return std::floor(a);
    case Op::ceil:
      return std::ceil(a);
    default:
      throw InternalError("an operation does not exist for floats");
  }
}

// Sums, products, quotients and roots of two f32 numbers are rounded correctly when computed in f64 first.
double float_op(Op op, DType type, std::span<const Value> args) {
  const double a = args[0].real, b = args.size() > 1 ? args[1].real : 0,
               c = args.size() > 2 ? args[2].real : 0;
  switch (op) {
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::div:
      return a / b;
    case Op::mod:
      return std::fmod(a, b);
    case Op::floordiv:
      return std::floor(rounded(type, a / b));
    case Op::floormod:
      return float_modulus(a, b);
    case Op::ceildiv:
      return std::ceil(rounded(type, a / b));
    case Op::min:
      return lesser(a, b);
    case Op::max:
      return greater(a, b);
    case Op::pow:
      return std::pow(a, b);
    case Op::fma:
      return type == f64 ? std::fma(a, b, c)
                         : std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
    default:
      return float_function(op, a);
  }
}

template <class T>
bool holds(Op op, T a, T b) {
  switch (op) {
    case Op::eq:
      return a == b;
    case Op::ne:
      return a != b;
    case Op::lt:
      return a < b;
    case Op::le:
      return a <= b;
    case Op::gt:
      return a > b;
    default:
      return a >= b;
  }
}

Value bitcast(DType to, const Value& value) {
  const DType from = value.type;
  internal_assert(from.bits() == to.bits() && to.bits() >= 32, "bitcast between types of different width");
  if (from.is_floating() == to.is_floating()) {
    return from.is_floating() ? value : Value{to, wrap(to, value.integer)};
  }
  if (to == f64) return {to, 0, std::bit_cast<double>(value.integer)};
  if (to == f32) return {to, 0, std::bit_cast<float>(static_cast<std::uint32_t>(value.integer))};
  if (from == f64) return {to, std::bit_cast<std::int64_t>(value.real)};
  return {to, wrap(to, std::bit_cast<std::int32_t>(static_cast<float>(value.real)))};
}

bool is_comparison(Op op) { return op >= Op::eq && op <= Op::ge; }

// Operations that drop an operand which does not count; null for the others.
const Value* selected(Op op, std::span<const Value> args) {
  if (op == Op::select) return args[0].invalid ? &args[0] : args[0].truth() ? &args[1] : &args[2];
  if (op == Op::logical_and) return args[0].invalid || !args[0].truth() ? &args[0] : &args[1];
  if (op == Op::logical_or) return args[0].invalid || args[0].truth() ? &args[0] : &args[1];
  return nullptr;
}

class Evaluation {
 public:
  Evaluation(const Lookup& lookup, bool* overflow) : lookup_(lookup), overflow_(overflow) {}

  Value operator()(const Expr& e) {
    if (e->op == Op::constant) return value_of(e);
    if (e->op == Op::variable) return lookup_(e->variable);
    if (const auto found = known_.find(e.get()); found != known_.end()) return found->second;
    Value args[3];
    for (std::size_t i = 0; i < e->args.size(); ++i) args[i] = (*this)(e->args[i]);
    const Value result = apply(e->op, e->type, std::span(args, e->args.size()), overflow_);
    if (e.use_count() > 1) known_.emplace(e.get(), result);
    return result;
  }

 private:
  const Lookup& lookup_;
  bool* overflow_;
  std::unordered_map<const ExprNode*, Value> known_;
};

}  // namespace

Value integer_value(DType type, std::int64_t number) { return {type, wrap(type, number)}; }
Value float_value(DType type, double number) { return {type, 0, rounded(type, number)}; }
Value truth_value(bool truth) { return {boolean, truth ? 1 : 0}; }
Value invalid_value(DType type) { return {compute_type(type), 0, 0, true}; }

Value convert(DType to, const Value& value) {
  const DType held = compute_type(to), from = value.type;
  if (value.invalid) return invalid_value(to);
  if (to.is_floating()) {
    const double real =
        from.is_floating() ? rounded(held, value.real) : integer_to_float(held, value.integer);
    return {held, 0, to == held ? real : round_to(to, real)};
  }
  if (!from.is_floating()) return {held, wrap(to, value.integer)};
  if (to.is_boolean()) return truth_value(value.real != 0);
  return {held, float_to_integer(to, value.real)};
}

Value apply(Op op, DType type, std::span<const Value> args, bool* overflow) {
  internal_assert(arity_of(op) > 0 && static_cast<int>(args.size()) == arity_of(op),
                  "an operation has the wrong number of operands");
  if (const Value* chosen = selected(op, args)) return chosen->invalid ? invalid_value(type) : *chosen;
  for (const Value& arg : args) {
    if (arg.invalid) return invalid_value(type);
  }
  const Value& a = args[0];
  if (op == Op::cast) return convert(type, a);
  if (op == Op::bitcast) return bitcast(type, a);
  if (op == Op::logical_not) return truth_value(!a.truth());
  if (op == Op::isnan) return truth_value(a.type.is_floating() && std::isnan(a.real));
  if (is_comparison(op)) {
    return truth_value(a.type.is_floating() ? holds(op, a.real, args[1].real)
                                            : holds(op, a.integer, args[1].integer));
  }
  if (type.is_floating()) return float_value(type, float_op(op, type, args));
  return integer_op(op, type, args, overflow);
}

Value evaluate(const Expr& e, const Lookup& lookup, bool* overflow) {
  return Evaluation(lookup, overflow)(e);
}

Value value_of(const Expr& constant) {
  internal_assert(is_constant(constant), "a constant is expected here");
  return {constant->type, constant->integer, constant->real};
}

bool identical(const Value& a, const Value& b) {
  if (!(a.type == b.type) || a.invalid != b.invalid) return false;
  return a.invalid || (a.integer == b.integer &&
                       std::bit_cast<std::uint64_t>(a.real) == std::bit_cast<std::uint64_t>(b.real));
}

}  // namespace tegula::ir

#include "tegula/lang/value.hpp"

#include <cmath>

#include "lang/builder.hpp"

namespace tegula {

lang::Expr DType::operator()(const lang::Operand& value) const {
  auto x =
      value.is_literal() ? lang::adopt_literal(value, compute_type(value.type()), value.at) : value.node();
  return lang::Expr(ir::make(ir::Op::cast, *this, {x}, value.at), false);
}

namespace lang {

namespace {

// Larger expressions inside a grid become a Let, so that trees stay small however they are shared.
constexpr int largest_expression = 48;

Expr made(ir::Op op, DType type, std::vector<ir::Expr> args, const Loc& at) {
  auto node = ir::make(op, type, std::move(args), at);
  auto builder = Builder::active();
  if (node->size <= largest_expression || !builder || !builder->within(ScopeKind::grid))
    return Expr(node, false);
  builder->check_scope(node, at);
  auto variable = builder->define(ir::VariableKind::let, "t", node->held(), at);
  builder->add(ir::statement(ir::Let{variable, node}, at));
  return Expr(ir::variable(variable, at), false);
}

// The value of an operation on two integer constants, if i32 holds it.
std::optional<std::int64_t> fold(ir::Op op, std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  switch (op) {
    case ir::Op::add:
      value = a + b;
      break;
    case ir::Op::sub:
      value = a - b;
      break;
    case ir::Op::mul:
      value = a * b;
      break;
    case ir::Op::min:
      value = std::min(a, b);
      break;
    case ir::Op::max:
      value = std::max(a, b);
      break;
    case ir::Op::div:
      if (b == 0) return {};
      value = a / b;
      break;
    case ir::Op::mod:
      if (b == 0) return {};
      value = a % b;
      break;
    case ir::Op::ceildiv:
      if (b <= 0 || a < 0) return {};
      value = (a + b - 1) / b;
      break;
    default:
      return {};
  }
  if (value < INT32_MIN || value > INT32_MAX) return {};
  return value;
}

Expr combine(ir::Op op, DType type, const Operand& a, const Operand& b, DType result) {
  auto x = a.is_literal() ? adopt_literal(a, type, a.at) : a.node();
  auto y = b.is_literal() ? adopt_literal(b, type, b.at) : b.node();
  bool literal = a.is_literal() && b.is_literal();
  if (result == i32 && ir::is_constant(x) && ir::is_constant(y))
    if (auto value = fold(op, ir::constant_value(x), ir::constant_value(y)))
      return Expr(ir::int32(*value, a.at), literal);
  auto widen = [&](ir::Expr e) { return e->held() == type ? e : ir::make(ir::Op::cast, type, {e}, e->at); };
  return made(op, result, {widen(x), widen(y)}, a.at);
}

Expr arithmetic(ir::Op op, const char* name, const Operand& a, const Operand& b) {
  DType type = common_type(name, a, b);
  if (type.is_boolean()) fail(a.at, std::string("`") + name + "` on booleans; use && || ! or select()");
  return combine(op, type, a, b, type);
}

Expr of_integers(ir::Op op, const char* name, const Operand& a, const Operand& b) {
  DType type = common_type(name, a, b);
  if (!type.is_integer())
    fail(a.at, std::string("`") + name + "` needs integers, got " + std::string(type.name()));
  return combine(op, type, a, b, type);
}

Expr shift(ir::Op op, const char* name, const Operand& a, const Operand& b) {
  for (auto* x : {&a, &b})
    if (!x->type().is_integer())
      fail(a.at, std::string("`") + name + "` needs integers, got " + std::string(x->type().name()));
  DType type = compute_type(a.type());
  auto x = a.is_literal() ? adopt_literal(a, type, a.at) : a.node();
  auto count = b.is_literal() ? adopt_literal(b, type, b.at) : b.node();
  if (count->held() != type) count = ir::make(ir::Op::cast, type, {count}, b.at);
  return made(op, type, {x, count}, a.at);
}

Expr compare(ir::Op op, const char* name, const Operand& a, const Operand& b) {
  return combine(op, common_type(name, a, b), a, b, boolean);
}

Expr logic(ir::Op op, const char* name, const Operand& a, const Operand& b) {
  for (auto* x : {&a, &b})
    if (!x->type().is_boolean())
      fail(a.at, std::string("`") + name + "` needs booleans, got " + std::string(x->type().name()) +
                     "; write a comparison");
  return combine(op, boolean, a, b, boolean);
}

ir::Expr node_of(const Operand& x) {
  return x.is_literal() ? adopt_literal(x, compute_type(x.type()), x.at) : x.node();
}

Expr of_float(ir::Op op, const char* name, const Operand& x) {
  if (!x.type().is_floating())
    fail(x.at, std::string(name) + "() needs a floating value, got " + std::string(x.type().name()) +
                   "; write f32(x)");
  return made(op, compute_type(x.type()), {node_of(x)}, x.at);
}

// `f32(n)`: the cast of this value, by its name if it has one that the user gave.
std::string cast_text(DType type, const Expr& value, const char* otherwise) {
  const auto& node = value.node();
  const bool named = node->op == ir::Op::variable && ir::is_host(node->variable->kind);
  return std::string(type.name()) + "(" + (named ? node->variable->name : otherwise) + ")";
}

// How values of two kinds are made one. A float stays a float: its cast to an integer would truncate.
std::string cast_advice(const Operand& a, const Operand& b) {
  const DType x = compute_type(a.type()), y = compute_type(b.type());
  if (x.is_boolean() || y.is_boolean())
    return "cast the boolean, such as " + (x.is_boolean() ? cast_text(y, a, "x") : cast_text(x, b, "x"));
  if (x.is_floating() || y.is_floating())
    return "cast the integer: " + (x.is_floating() ? cast_text(x, b, "i") : cast_text(y, a, "i"));
  return "cast one of them: " + cast_text(x, b, "y") + " or " + cast_text(y, a, "x");
}

}  // namespace

DType common_type(const char* op, const Operand& a, const Operand& b) {
  DType x = compute_type(a.type()), y = compute_type(b.type());
  bool literal_x = a.is_literal(), literal_y = b.is_literal();
  if (literal_x && !literal_y) std::swap(x, y), std::swap(literal_x, literal_y);
  std::string name = std::string("`") + op + "`";
  if (literal_y && x.kind() != y.kind()) {
    if (y.is_floating() && x.is_integer())
      fail(a.at, name + " of a floating literal with an " + std::string(x.name()) + " value; write " +
                     cast_text(f32, a.is_literal() ? b : a, "i"));
    if (!x.is_boolean() && !y.is_boolean()) return x;
  }
  if (literal_y && !literal_x && x.kind() == y.kind()) return x;
  if (x.kind() != y.kind())
    fail(a.at, name + " mixes " + std::string(compute_type(a.type()).name()) + " and " +
                   std::string(compute_type(b.type()).name()) + "; " + cast_advice(a, b));
  return x.bits() >= y.bits() ? x : y;
}

ir::Expr adopt_literal(const Expr& literal, DType type, const Loc& at) {
  auto& node = literal.node();
  if (!ir::is_constant(node)) return node;
  DType from = node->type;
  if (type.is_floating())
    return ir::constant(type, from.is_floating() ? node->real : static_cast<double>(node->integer), at);
  internal_assert(!from.is_floating() && from.is_boolean() == type.is_boolean(),
                  "the kinds of literals are checked before");
  std::int64_t value = node->integer;
  DType held = compute_type(type);
  bool fits = held == i64 || held == boolean ||
              (held == u32 ? value >= 0 && value <= UINT32_MAX : value >= INT32_MIN && value <= INT32_MAX);
  if (!fits)
    fail(at, "the literal " + std::to_string(value) + " does not fit " + std::string(held.name()) +
                 "; convert the other operand to a wider type, as in i64(x)");
  return ir::constant(held, value, at);
}

namespace {

ir::Expr constant_of(const detail::Literal& value) {
  using Kind = detail::Literal::Kind;
  if (value.kind == Kind::boolean) return ir::truth(value.whole != 0);
  if (value.kind == Kind::real) return ir::constant(f64, value.real);
  const bool fits = value.whole >= INT32_MIN && value.whole <= INT32_MAX;
  return ir::constant(value.kind == Kind::natural ? u32 : fits ? i32 : i64, value.whole);
}

}  // namespace

Expr::Expr(const detail::Literal& value) : Expr(constant_of(value), true) {}
Expr::Expr(Node node, bool literal) : node_(std::move(node)), literal_(literal) {}
Expr::Expr(const Expr&) = default;
Expr::~Expr() = default;

Operand::Operand(const detail::Literal& value, Loc at) : Expr(value), at(detail::user_place(at)) {}
Operand::Operand(const Expr& value, Loc at) : Expr(value), at(detail::user_place(at)) {}
Operand::Operand(const Var& variable, Loc at) : Operand(Expr(variable, at), at) {}
Operand::Operand(const Operand&) = default;

DType Expr::type() const { return literal_ && node_->type == f64 ? f32 : node_->type; }

Dim::Dim(const std::string& name, Loc written)
    : Expr(
          [&] {
            const Loc at = detail::user_place(written);
            auto& builder = Builder::current(at);
            builder.define_name(name, at);
            auto variable = builder.define(ir::VariableKind::dim, name, i32, at);
            builder.kernel.dims.push_back({variable, 1});
            return ir::variable(variable, at);
          }(),
          false) {}

Dim& Dim::multiple_of(int factor, Loc at) {
  if (factor < 1) fail(at, "multiple_of(" + std::to_string(factor) + "): the factor must be positive");
  for (auto& dim : Builder::current(at).kernel.dims)
    if (dim.variable == node()->variable) dim.multiple = factor;
  return *this;
}

// clang-format off
Expr operator+(const Operand& a, const Operand& b) { return arithmetic(ir::Op::add, "+", a, b); }
Expr operator-(const Operand& a, const Operand& b) { return arithmetic(ir::Op::sub, "-", a, b); }
Expr operator*(const Operand& a, const Operand& b) { return arithmetic(ir::Op::mul, "*", a, b); }
Expr operator/(const Operand& a, const Operand& b) { return arithmetic(ir::Op::div, "/", a, b); }
Expr operator%(const Operand& a, const Operand& b) { return of_integers(ir::Op::mod, "%", a, b); }
Expr operator&(const Operand& a, const Operand& b) { return of_integers(ir::Op::bit_and, "&", a, b); }
Expr operator|(const Operand& a, const Operand& b) { return of_integers(ir::Op::bit_or, "|", a, b); }
Expr operator^(const Operand& a, const Operand& b) { return of_integers(ir::Op::bit_xor, "^", a, b); }
Expr operator<<(const Operand& a, const Operand& b) { return shift(ir::Op::shl, "<<", a, b); }
Expr operator>>(const Operand& a, const Operand& b) { return shift(ir::Op::shr, ">>", a, b); }
Expr operator==(const Operand& a, const Operand& b) { return compare(ir::Op::eq, "==", a, b); }
Expr operator!=(const Operand& a, const Operand& b) { return compare(ir::Op::ne, "!=", a, b); }
Expr operator<(const Operand& a, const Operand& b) { return compare(ir::Op::lt, "<", a, b); }
Expr operator<=(const Operand& a, const Operand& b) { return compare(ir::Op::le, "<=", a, b); }
Expr operator>(const Operand& a, const Operand& b) { return compare(ir::Op::gt, ">", a, b); }
Expr operator>=(const Operand& a, const Operand& b) { return compare(ir::Op::ge, ">=", a, b); }
Expr operator&&(const Operand& a, const Operand& b) { return logic(ir::Op::logical_and, "&&", a, b); }
Expr operator||(const Operand& a, const Operand& b) { return logic(ir::Op::logical_or, "||", a, b); }
Expr max(const Operand& a, const Operand& b) { return arithmetic(ir::Op::max, "max", a, b); }
Expr min(const Operand& a, const Operand& b) { return arithmetic(ir::Op::min, "min", a, b); }
Expr floordiv(const Operand& a, const Operand& b) { return of_integers(ir::Op::floordiv, "floordiv", a, b); }
Expr floormod(const Operand& a, const Operand& b) { return of_integers(ir::Op::floormod, "floormod", a, b); }
Expr ceildiv(const Operand& a, const Operand& b) { return of_integers(ir::Op::ceildiv, "ceildiv", a, b); }
Expr exp(const Operand& x) { return of_float(ir::Op::exp, "exp", x); }
Expr exp2(const Operand& x) { return of_float(ir::Op::exp2, "exp2", x); }
Expr log(const Operand& x) { return of_float(ir::Op::log, "log", x); }
Expr log2(const Operand& x) { return of_float(ir::Op::log2, "log2", x); }
Expr sqrt(const Operand& x) { return of_float(ir::Op::sqrt, "sqrt", x); }
Expr rsqrt(const Operand& x) { return of_float(ir::Op::rsqrt, "rsqrt", x); }
Expr rcp(const Operand& x) { return of_float(ir::Op::rcp, "rcp", x); }
Expr tanh(const Operand& x) { return of_float(ir::Op::tanh, "tanh", x); }
Expr sin(const Operand& x) { return of_float(ir::Op::sin, "sin", x); }
Expr cos(const Operand& x) { return of_float(ir::Op::cos, "cos", x); }
Expr erf(const Operand& x) { return of_float(ir::Op::erf, "erf", x); }
Expr round(const Operand& x) { return of_float(ir::Op::round, "round", x); }
Expr floor(const Operand& x) { return of_float(ir::Op::floor, "floor", x); }
Expr ceil(const Operand& x) { return of_float(ir::Op::ceil, "ceil", x); }
// clang-format on

Expr clamp(const Operand& x, const Operand& low, const Operand& high) {
  if (low.is_literal() && high.is_literal()) {
    const auto number = [](const Operand& e) {
      return e.node()->type.is_floating() ? e.node()->real : static_cast<double>(e.node()->integer);
    };
    const bool are_constants = ir::is_constant(low.node()) && ir::is_constant(high.node());
    if (are_constants && number(low) > number(high))
      fail(x.at, "the lower limit of clamp() is above the upper one; give the lower one first");
  }
  return min(Operand(max(x, low), x.at), high);
}

Expr operator!(const Operand& a) {
  if (!a.type().is_boolean()) fail(a.at, "`!` needs a boolean, got " + std::string(a.type().name()));
  return made(ir::Op::logical_not, boolean, {node_of(a)}, a.at);
}

Expr operator-(const Operand& a) {
  if (a.type().is_boolean()) fail(a.at, "`-` of a boolean; use ! or select()");
  if (a.is_literal() && ir::is_constant(a.node()))
    return a.node()->type.is_floating() ? Expr(ir::constant(f64, -a.node()->real, a.at), true)
                                        : Expr(ir::constant(a.node()->type, -a.node()->integer, a.at), true);
  return made(ir::Op::neg, compute_type(a.type()), {node_of(a)}, a.at);
}

Expr operator~(const Operand& a) {
  if (!a.type().is_integer()) fail(a.at, "`~` needs an integer, got " + std::string(a.type().name()));
  return made(ir::Op::bit_not, compute_type(a.type()), {node_of(a)}, a.at);
}

Expr popcount(const Operand& x) {
  if (!x.type().is_integer()) fail(x.at, "popcount() needs an integer, got " + std::string(x.type().name()));
  return made(ir::Op::popcount, compute_type(x.type()), {node_of(x)}, x.at);
}

Expr mul_high(const Operand& a, const Operand& b) {
  const DType type = common_type("mul_high", a, b);
  if (type != u32) fail(a.at, "mul_high() needs u32, got " + std::string(type.name()) + "; write u32(x)");
  return combine(ir::Op::mul_high, u32, a, b, u32);
}

Expr pow(const Operand& x, const Operand& exponent) {
  const DType type = common_type("pow", x, exponent);
  if (!type.is_floating())
    fail(x.at, "pow() needs floating values, got " + std::string(type.name()) + "; write f32(x)");
  return combine(ir::Op::pow, type, x, exponent, type);
}

Expr abs(const Operand& x) {
  if (x.type().is_boolean()) fail(x.at, "abs() of a boolean; cast it, as in i32(x)");
  return made(ir::Op::abs, compute_type(x.type()), {node_of(x)}, x.at);
}

Expr select(const Operand& condition, const Operand& a, const Operand& b) {
  if (!condition.type().is_boolean())
    fail(condition.at, "select() needs a boolean condition, got " + std::string(condition.type().name()) +
                           "; write a comparison");
  DType type = common_type("select", a, b);
  auto side = [&](const Operand& x) {
    auto node = x.is_literal() ? adopt_literal(x, type, x.at) : x.node();
    return node->held() == type ? node : ir::make(ir::Op::cast, type, {node}, x.at);
  };
  return made(ir::Op::select, type, {node_of(condition), side(a), side(b)}, condition.at);
}

Expr fma(const Operand& a, const Operand& b, const Operand& c) {
  DType type = common_type("fma", a, Operand(arithmetic(ir::Op::mul, "fma", b, c), b.at));
  if (!type.is_floating()) fail(a.at, "fma() needs floating values, got " + std::string(type.name()));
  auto side = [&](const Operand& x) {
    auto node = x.is_literal() ? adopt_literal(x, type, x.at) : x.node();
    return node->held() == type ? node : ir::make(ir::Op::cast, type, {node}, x.at);
  };
  return made(ir::Op::fma, type, {side(a), side(b), side(c)}, a.at);
}

Expr isnan(const Operand& x) {
  if (!x.type().is_floating())
    fail(x.at, "isnan() needs a floating value, got " + std::string(x.type().name()));
  return made(ir::Op::isnan, boolean, {node_of(x)}, x.at);
}

Expr bitcast(const Operand& x, DType type) {
  auto node = node_of(x);
  if (node->held().bits() != type.bits() || type.bits() < 32 || node->held().is_boolean())
    fail(x.at, "bitcast() from " + std::string(node->held().name()) + " to " + std::string(type.name()) +
                   ": the types must have one width of 32 or 64 bits");
  return made(ir::Op::bitcast, type, {node}, x.at);
}

}  // namespace lang
}  // namespace tegula

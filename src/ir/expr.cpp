#include "ir/expr.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "ir/arithmetic.hpp"

namespace tegula::ir {
namespace {

struct OpInfo {
  std::string_view name, symbol;
  int arity;
};

// In the order of the enumeration.
constexpr OpInfo op_table[] = {
    {"constant", "", 0},      {"variable", "", 0},     {"add", "+", 2},        {"sub", "-", 2},
    {"mul", "*", 2},          {"div", "/", 2},         {"mod", "%", 2},        {"floordiv", "", 2},
    {"floormod", "", 2},      {"ceildiv", "", 2},      {"min", "", 2},         {"max", "", 2},
    {"neg", "", 1},           {"abs", "", 1},          {"bit_and", "&", 2},    {"bit_or", "|", 2},
    {"bit_xor", "^", 2},      {"bit_not", "", 1},      {"popcount", "", 1},    {"mul_high", "", 2},
    {"shl", "<<", 2},         {"shr", ">>", 2},        {"eq", "==", 2},        {"ne", "!=", 2},
    {"lt", "<", 2},           {"le", "<=", 2},         {"gt", ">", 2},         {"ge", ">=", 2},
    {"logical_and", "&&", 2}, {"logical_or", "||", 2}, {"logical_not", "", 1}, {"isnan", "", 1},
    {"select", "", 3},        {"cast", "", 1},         {"bitcast", "", 1},     {"fma", "", 3},
    {"exp", "", 1},           {"exp2", "", 1},         {"log", "", 1},         {"log2", "", 1},
    {"sqrt", "", 1},          {"rsqrt", "", 1},        {"rcp", "", 1},         {"tanh", "", 1},
    {"sin", "", 1},           {"cos", "", 1},          {"erf", "", 1},         {"pow", "", 2},
    {"round", "", 1},         {"floor", "", 1},        {"ceil", "", 1},
};
static_assert(std::size(op_table) == op_count);
static_assert(op_table[static_cast<int>(Op::ceil)].name == "ceil");
static_assert(op_table[static_cast<int>(Op::select)].name == "select");

const OpInfo& info(Op op) { return op_table[static_cast<int>(op)]; }

Expr leaf(Op op, DType type, const Loc& at, VariablePtr variable, std::int64_t integer, double real) {
  return std::make_shared<const ExprNode>(ExprNode{op, type, 1, at, {}, std::move(variable), integer, real});
}

// Shared subexpressions make some expressions exponential as trees; from this size on, pairs that were found
// equal are remembered.
constexpr int large = 256;

class Equality {
 public:
  bool operator()(const Expr& a, const Expr& b) {
    if (a == b) return true;
    if (a == nullptr || b == nullptr || !same_node(*a, *b)) return false;
    if (a->size >= large && known_.contains({a.get(), b.get()})) return true;
    for (std::size_t i = 0; i < a->args.size(); ++i) {
      if (!(*this)(a->args[i], b->args[i])) return false;
    }
    if (a->size >= large) known_.insert({a.get(), b.get()});
    return true;
  }

 private:
  static bool same_node(const ExprNode& a, const ExprNode& b) {
    return a.op == b.op && a.type == b.type && a.size == b.size && a.args.size() == b.args.size() &&
           a.variable == b.variable && a.integer == b.integer &&
           std::bit_cast<std::uint64_t>(a.real) == std::bit_cast<std::uint64_t>(b.real);
  }

  std::set<std::pair<const ExprNode*, const ExprNode*>> known_;
};

}  // namespace

std::string_view name_of(Op op) { return info(op).name; }
std::string_view symbol_of(Op op) { return info(op).symbol; }
int arity_of(Op op) { return info(op).arity; }

Expr constant(const Value& value, const Loc& at) {
  internal_assert(!value.invalid, "an invalid value is no constant");
  return leaf(Op::constant, value.type, at, nullptr, value.integer, value.real);
}

Expr constant(DType type, std::int64_t value, const Loc& at) {
  return constant(convert(type, integer_value(i64, value)), at);
}

Expr constant(DType type, double value, const Loc& at) {
  return constant(convert(type, float_value(f64, value)), at);
}

Expr int32(std::int64_t value, const Loc& at) { return constant(i32, value, at); }
Expr truth(bool value, const Loc& at) { return leaf(Op::constant, boolean, at, nullptr, value ? 1 : 0, 0); }

Expr variable(const VariablePtr& variable, const Loc& at) {
  internal_assert(variable != nullptr, "an expression names no variable");
  return leaf(Op::variable, variable->type, at, variable, 0, 0);
}

Expr make(Op op, DType type, std::vector<Expr> args, const Loc& at) {
  internal_assert(arity_of(op) > 0 && static_cast<int>(args.size()) == arity_of(op),
                  "an operation has the wrong number of operands");
  std::int64_t size = 1;
  for (const Expr& arg : args) {
    internal_assert(arg != nullptr, "an operand is missing");
    size += arg->size;
  }
  const int saturated = static_cast<int>(std::min<std::int64_t>(size, std::numeric_limits<int>::max()));
  return std::make_shared<const ExprNode>(ExprNode{op, type, saturated, at, std::move(args), nullptr, 0, 0});
}

bool is_constant(const Expr& e) { return e->op == Op::constant; }

bool is_constant(const Expr& e, std::int64_t value) {
  return is_constant(e) && !e->type.is_floating() && e->integer == value;
}

std::int64_t constant_value(const Expr& e) {
  internal_assert(e != nullptr && is_constant(e) && !e->type.is_floating(),
                  "an integer constant is expected here");
  return e->integer;
}

bool equal(const Expr& a, const Expr& b) { return Equality()(a, b); }

bool equal(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), Equality());
}

}  // namespace tegula::ir

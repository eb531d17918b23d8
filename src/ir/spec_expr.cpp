#include <algorithm>
#include <limits>

#include "ir/spec.hpp"

namespace tegula::ir {
namespace {

struct ExprRule {
  std::string_view text;
  Op first, last;  // the operations it speaks of
  bool (*holds)(const ExprNode&);
};

DType held(const ExprNode& e, std::size_t arg) { return e.args[arg]->held(); }

bool all_held(const ExprNode& e, DType type, std::size_t from = 0) {
  return std::all_of(e.args.begin() + static_cast<std::ptrdiff_t>(from), e.args.end(),
                     [&](const Expr& arg) { return arg->held() == type; });
}

bool fits(const ExprNode& e) {
  switch (e.type.code) {
    case TypeCode::boolean:
      return e.integer == 0 || e.integer == 1;
    case TypeCode::i32:
      return e.integer == static_cast<std::int32_t>(e.integer);
    case TypeCode::u32:
      return e.integer == static_cast<std::uint32_t>(e.integer);
    default:
      return true;
  }
}

constexpr Op begin = Op::constant, end = Op::ceil;

// Casts may name a small type, in which no value is held.
const ExprRule expr_rules[] = {
    {"an operation has as many operands as it needs", begin, end,
     [](const ExprNode& e) { return static_cast<int>(e.args.size()) == arity_of(e.op); }},
    {"no operand is missing", begin, end,
     [](const ExprNode& e) { return std::find(e.args.begin(), e.args.end(), nullptr) == e.args.end(); }},
    {"values exist in f32, f64, i32, i64, u32 and bool", begin, end,
     [](const ExprNode& e) { return e.op == Op::cast || e.type == compute_type(e.type); }},
    {"a constant fits its type", Op::constant, Op::constant, fits},
    {"a variable has its own type", Op::variable, Op::variable,
     [](const ExprNode& e) { return e.variable != nullptr && e.variable->type == e.type; }},
    {"operands have the type of the result", Op::add, Op::shr,
     [](const ExprNode& e) { return all_held(e, e.type); }},
    {"operands have the type of the result", Op::fma, end,
     [](const ExprNode& e) { return all_held(e, e.type); }},
    {"arithmetic is on numbers", Op::add, Op::shr, [](const ExprNode& e) { return !e.type.is_boolean(); }},
    {"remainders and rounding divisions are of integers", Op::mod, Op::ceildiv,
     [](const ExprNode& e) { return e.type.is_integer(); }},
    {"operations on bits are on integers", Op::bit_and, Op::shr,
     [](const ExprNode& e) { return e.type.is_integer(); }},
    {"mul_high is of u32", Op::mul_high, Op::mul_high, [](const ExprNode& e) { return e.type == u32; }},
    {"both sides of a comparison have one type", Op::eq, Op::ge,
     [](const ExprNode& e) { return held(e, 0) == held(e, 1); }},
    {"order is between numbers", Op::lt, Op::ge, [](const ExprNode& e) { return !held(e, 0).is_boolean(); }},
    {"a comparison is a bool", Op::eq, Op::isnan, [](const ExprNode& e) { return e.type.is_boolean(); }},
    {"operands of logical operations are bools", Op::logical_and, Op::logical_not,
     [](const ExprNode& e) { return all_held(e, boolean); }},
    {"isnan is of a float", Op::isnan, Op::isnan, [](const ExprNode& e) { return held(e, 0).is_floating(); }},
    {"select decides by a bool", Op::select, Op::select,
     [](const ExprNode& e) { return held(e, 0).is_boolean(); }},
    {"the arms of select have the type of the result", Op::select, Op::select,
     [](const ExprNode& e) { return all_held(e, e.type, 1); }},
    {"bitcast is between types of one width", Op::bitcast, Op::bitcast,
     [](const ExprNode& e) {
       return e.type.bits() == held(e, 0).bits() && !e.type.is_boolean() && !held(e, 0).is_boolean();
     }},
    {"elementary functions are of floats", Op::fma, end,
     [](const ExprNode& e) { return e.type.is_floating(); }},
};

}  // namespace

Broken broken_rule(const ExprNode& e) {
  for (const ExprRule& rule : expr_rules) {
    if (rule.first <= e.op && e.op <= rule.last && !rule.holds(e)) return rule.text;
  }
  return std::nullopt;
}

}  // namespace tegula::ir

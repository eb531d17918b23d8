#include "codegen/cuda/expressions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/repeated.hpp"
#include "ir/representable.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

std::string constant_of(const ExprNode& e) {
  if (e.held().is_floating()) {
    const char* wide = e.held() == f64 ? "double" : "";
    if (std::isnan(e.real)) return fmt::format("{}(tg::not_a_number())", wide);
    if (std::isinf(e.real)) return fmt::format("{}({}tg::infinity())", wide, e.real < 0 ? "-" : "");
  }
  if (e.held() == i32 && e.integer == INT32_MIN) return "(-2147483647 - 1)";
  if (e.held() == i64 && e.integer == INT64_MIN) return "(-9223372036854775807l - 1)";
  return constant_text(e);
}

}  // namespace

void Expressions::forget_names(const VariablePtr& of) {
  std::erase_if(named_, [&](const auto& each) {
    bool found = false;
    for_each_variable(each.first, [&](const VariablePtr& v) { found |= v == of; });
    return found;
  });
}

std::string Expressions::value(const Expr& e) {
  common_.clear();
  repeated_ = repeated_in(e);
  return emit(e);
}

std::string Expressions::variable_text(const VariablePtr& variable) const {
  const auto found = names_of_.find(variable.get());
  internal_assert(found != names_of_.end(), "a variable is used outside its scope", variable->at);
  return found->second;
}

std::string Expressions::name_variable(const VariablePtr& variable) {
  return names_of_.insert_or_assign(variable.get(), names_.unique(variable->name)).first->second;
}

std::string Expressions::emit(const Expr& e) {
  if (e->op == Op::constant) return constant_of(*e);
  if (e->op == Op::variable) return variable_text(e->variable);
  if (const auto found = common_.find(e.get()); found != common_.end()) return found->second;
  for (const auto& [division, name] : named_)
    if (equal(e, division)) return name;
  std::string text = emit_node(e);
  if (!repeated_.contains(e.get())) return text;
  const std::string name = names_.unique("t");
  out_.define(scalar_type(e->held()), name, bare(text));
  return common_.emplace(e.get(), name).first->second;
}

// NVRTC makes two instructions of masking bits and flipping or adding others if mask and pattern are
// constants.
std::optional<std::string> Expressions::masked(const Expr& e) {
  const bool flips = e->op == Op::bit_xor;
  if ((!flips && e->op != Op::bit_or) || e->held() != u32) return std::nullopt;
  const auto is_chosen = [&](const Expr& x) { return x->op == Op::bit_and && !repeated_.contains(x.get()); };
  const std::size_t at = is_chosen(e->args[0]) ? 0 : 1;
  const Expr &chosen = e->args[at], &pattern = e->args[1 - at];
  if (!is_chosen(chosen)) return std::nullopt;
  if (!flips && !(is_constant(chosen->args[1]) && is_constant(pattern))) return std::nullopt;
  const std::string bits = emit(chosen->args[0]), mask = emit(chosen->args[1]);
  return fmt::format("tg::masked_{}({}, {}, {})", flips ? "xor" : "or", bits, mask, emit(pattern));
}

std::string Expressions::emit_node(const Expr& e) {
  if (const auto text = masked(e)) return *text;
  std::vector<std::string> x;
  for (const Expr& arg : e->args) x.push_back(emit(arg));
  if (const char* symbol = infix(e->op)) return infix_text(e, symbol, x);
  switch (e->op) {
    case Op::cast:
      return emit_cast(e, x[0]);
    case Op::bitcast:
      return e->args[0]->held() == e->type ? x[0] : fmt::format("tg::as_{}({})", e->type.name(), bare(x[0]));
    case Op::neg:
      return fmt::format("(-{})", x[0]);
    case Op::bit_not:
      return fmt::format("(~{})", x[0]);
    case Op::logical_not:
      return fmt::format("(!{})", x[0]);
    case Op::select:
      return choice_text(e, x);
    case Op::isnan:
      return e->args[0]->held().is_floating() ? fmt::format("tg::isnan({})", bare(x[0])) : "false";
    case Op::div:
    case Op::mod:
    case Op::floordiv:
    case Op::floormod:
    case Op::ceildiv:
      return emit_division(e, x);
    default:
      for (std::string& argument : x) argument = bare(argument);
      return fmt::format("tg::{}({})", name_of(e->op), fmt::join(x, ", "));
  }
}

std::string Expressions::infix_text(const Expr& e, std::string_view symbol, std::vector<std::string> x) {
  for (std::size_t i = 0; i < 2; ++i)
    if (!needs_parentheses(e->op, e->args[i]->op, i == 1)) x[i] = bare(x[i]);
  return fmt::format("({} {} {})", x[0], symbol, x[1]);
}

// Division by a positive constant needs no care; of what is not negative all three ways are one, and short.
std::string Expressions::emit_division(const Expr& e, const std::vector<std::string>& x) {
  if (e->held().is_floating()) return infix_text(e, "/", x);
  const Expr& by = e->args[1];
  const bool positive = is_constant(by) && constant_value(by) > 0;
  const bool natural = is_at_least(e->args[0], 0) && is_at_least(by, 0);
  if (positive && (e->op == Op::div || (natural && e->op == Op::floordiv))) return infix_text(e, "/", x);
  if (positive && (e->op == Op::mod || (natural && e->op == Op::floormod))) return infix_text(e, "%", x);
  if (natural && e->held() == i32) {
    const bool rest = e->op == Op::mod || e->op == Op::floormod;
    return fmt::format("tg::natural_{}({}, {})",
                       e->op == Op::ceildiv ? "ceildiv"
                       : rest               ? "mod"
                                            : "div",
                       bare(x[0]), bare(x[1]));
  }
  return fmt::format("tg::{}<{}>({}, {})", name_of(e->op), scalar_type(e->held()), bare(x[0]), bare(x[1]));
}

std::string Expressions::emit_cast(const Expr& e, const std::string& x) {
  const DType from = e->args[0]->held(), to = e->type;
  if (from == to) return x;
  if (to.is_boolean()) return fmt::format("({} != 0)", x);
  std::string text =
      compute_type(to) == from ? x : fmt::format("tg::to_{}({})", compute_type(to).name(), bare(x));
  if (to.bits() >= 32 || is_exact(e->args[0], to)) return text;
  if (from.is_floating() && to.is_integer()) {
    const bool is_unsigned = to.is_unsigned();
    const long high = (1L << (is_unsigned ? to.bits() : to.bits() - 1)) - 1;
    const std::string_view type = scalar_type(to);
    return fmt::format("tg::max(tg::min({}, {}({})), {}({}))", text, type, high, type,
                       is_unsigned ? 0 : -high - 1);
  }
  return fmt::format("tg::rounded<{}>({})", element_type(to), bare(text));
}

bool Expressions::is_at_least(const Expr& a, std::int64_t least) const {
  return has_affine_form(a->held()) && bounds(a, facts).low >= least;
}

bool Expressions::is_less(const Expr& a, const Expr& b, std::int64_t by) const {
  if (!has_affine_form(a->held()) || !has_affine_form(b->held())) return false;
  const auto distance = difference(affine(b), affine(a));
  if (distance && bounds(*distance, facts).low >= by) return true;
  // a + by <= n / c where c times as much is at most n.
  if (b->op != Op::div || !is_constant(b->args[1]) || !is_at_least(b->args[0], 0)) return false;
  const std::int64_t c = constant_value(b->args[1]);
  if (c <= 0 || c > INT32_MAX) return false;
  const auto left = sum(affine(b->args[0]), affine(a), -c);
  return left && bounds(*left, facts).low >= c * by;
}

bool Expressions::is_exact(const Expr& value, DType type) const {
  return is_representable(value, type, [&](const VariablePtr& v) -> std::optional<DType> {
    const auto found = stored_types_.find(v.get());
    if (found == stored_types_.end()) return std::nullopt;
    return found->second;
  });
}

std::string element_type(DType type) {
  constexpr const char* names[] = {"tg::boolean", "int8_t",   "int16_t",  "int32_t",  "int64_t",
                                   "uint8_t",     "uint32_t", "tg::e4m3", "tg::e5m2", "tg::f16",
                                   "tg::bf16",    "float",    "double"};
  return names[static_cast<int>(type.code)];
}

}  // namespace tegula::codegen

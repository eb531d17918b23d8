#include "ir/print_expr.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace tegula::ir {
namespace {

constexpr int unary = 11, primary = 12;

// How strongly an operator of C++ binds.
int precedence_of(const Expr& e) {
  switch (e->op) {
    case Op::mul:
    case Op::div:
    case Op::mod:
      return 10;
    case Op::add:
    case Op::sub:
      return 9;
    case Op::shl:
    case Op::shr:
      return 8;
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
      return 7;
    case Op::eq:
    case Op::ne:
      return 6;
    case Op::bit_and:
      return 5;
    case Op::bit_xor:
      return 4;
    case Op::bit_or:
      return 3;
    case Op::logical_and:
      return 2;
    case Op::logical_or:
      return 1;
    case Op::neg:
    case Op::bit_not:
    case Op::logical_not:
      return unary;
    case Op::constant:
      return std::signbit(e->real) || e->integer < 0 ? unary : primary;
    default:
      return primary;
  }
}

std::string number(const Expr& e) {
  if (e->type.is_boolean()) return e->integer != 0 ? "true" : "false";
  if (!e->type.is_floating())
    return std::to_string(e->integer) + (e->type == u32 ? "u" : e->type == i64 ? "L" : "");
  std::string text =
      e->type == f64 ? fmt::format("{}", e->real) : fmt::format("{}", static_cast<float>(e->real));
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// Expressions of more nodes are not written out.
constexpr int most_nodes = 20000;

bool is_trivial(const ViewDim& dim, const Expr& full) {
  return (!dim.low || is_constant(dim.low, 0)) && (!dim.high || equal(dim.high, full));
}

// [offset, offset + extent) as the user's bounds, if that is what they are.
bool is_slice(const ViewDim& dim, const Expr& extent) {
  if (!dim.low || !dim.high || !equal(dim.low, dim.offset)) return false;
  if (is_constant(extent) && is_constant(dim.low) && is_constant(dim.high)) {
    return constant_value(dim.high) - constant_value(dim.low) == constant_value(extent);
  }
  if (is_constant(dim.low, 0)) return equal(dim.high, extent);
  return (extent->op == Op::sub && equal(extent->args[0], dim.high) && equal(extent->args[1], dim.low)) ||
         (dim.high->op == Op::add && equal(dim.high->args[0], dim.low) && equal(dim.high->args[1], extent));
}

Expr end_of(const Expr& offset, const Expr& extent) {
  if (is_constant(offset, 0)) return extent;
  if (is_constant(offset) && is_constant(extent))
    return int32(constant_value(offset) + constant_value(extent));
  return make(Op::add, offset->held(), {offset, extent});
}

// Axes of the view in the order of the dimensions of the buffer.
std::vector<int> axes_in_order(const View& view) {
  std::vector<int> axes;
  for (const ViewDim& dim : view.dims) {
    if (dim.axis >= 0) axes.push_back(dim.axis);
  }
  return axes;
}

std::string permutation(const View& view) {
  const std::vector<int> axes = axes_in_order(view);
  if (std::is_sorted(axes.begin(), axes.end())) return "";
  if (axes.size() == 2) return ".T()";
  std::vector<int> source(axes.size());
  for (std::size_t k = 0; k < axes.size(); ++k)
    source.at(static_cast<std::size_t>(axes[k])) = static_cast<int>(k);
  return fmt::format(".permute({})", fmt::join(source, ", "));
}

}  // namespace

void Names::leave() {
  for (const void* identity : scopes_.back()) {
    taken_.erase(names_.at(identity));
    names_.erase(identity);
  }
  scopes_.pop_back();
}

std::string Names::of(const void* identity, const std::string& wanted, const char* otherwise) {
  if (const auto found = names_.find(identity); found != names_.end()) return found->second;
  const std::string base = wanted.empty() ? otherwise : wanted;
  std::string name = base;
  for (int n = 2; taken_.contains(name); ++n) name = fmt::format("{}_{}", base, n);
  taken_[name] = identity;
  scopes_.back().push_back(identity);
  return names_[identity] = name;
}

std::string ExprPrinter::expr(const Expr& e, int least) {
  if (e->size > most_nodes) return fmt::format("<expression of {} nodes>", e->size);
  const int precedence = precedence_of(e);
  const std::string text = node(e, precedence);
  return precedence < least ? "(" + text + ")" : text;
}

std::string ExprPrinter::node(const Expr& e, int precedence) {
  if (const auto symbol = symbol_of(e->op); !symbol.empty()) {
    const std::string left = expr(e->args[0], precedence), right = expr(e->args[1], precedence + 1);
    return fmt::format("{} {} {}", left, symbol, right);
  }
  switch (e->op) {
    case Op::constant:
      return number(e);
    case Op::variable:
      return variable(e->variable);
    case Op::neg:
      return fmt::format("-{}", expr(e->args[0], primary));
    case Op::bit_not:
      return fmt::format("~{}", expr(e->args[0], unary));
    case Op::logical_not:
      return fmt::format("!{}", expr(e->args[0], unary));
    case Op::cast:
      return fmt::format("{}({})", e->type.name(), expr(e->args[0], 0));
    case Op::bitcast:
      return fmt::format("bitcast({}, {})", expr(e->args[0], 0), e->type.name());
    default:
      return fmt::format("{}({})", name_of(e->op), list(e->args));
  }
}

std::string ExprPrinter::variable(const VariablePtr& v) {
  const auto found = in_place_.find(v.get());
  if (found == in_place_.end()) return names.of(v);
  const Stmt read = found->second;
  if (const auto* load = as<Load>(read)) return (*this)(load->from);
  return names.of(as<Let>(read)->value->variable);
}

std::string ExprPrinter::list(const std::vector<Expr>& exprs) {
  std::vector<std::string> texts;
  for (const Expr& e : exprs) texts.push_back(expr(e, 0));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string ExprPrinter::shape(const std::vector<Expr>& extents) {
  return fmt::format("[{}]", list(extents));
}

std::string ExprPrinter::base(const View& view) {
  const std::string name = names.of(view.buffer);
  return !is_own_shape(view) ? fmt::format("{}.reshape({})", name, list(view.shape)) : name;
}

std::string ExprPrinter::limits(const ViewDim& dim, const Expr& full) {
  if (is_trivial(dim, full)) return "";
  const std::string low = dim.low ? expr(dim.low, 0) : "0";
  return fmt::format(" in {} : {}", low, expr(dim.high ? dim.high : full, 0));
}

std::string ExprPrinter::range(const ViewDim& dim, const Expr& full, const Expr& extent) {
  if (is_constant(dim.offset, 0) && equal(extent, full) && is_trivial(dim, full)) return ":";
  const bool slice = is_slice(dim, extent);
  const std::string begin = expr(slice ? dim.low : dim.offset, 0);
  const std::string end = expr(slice ? dim.high : end_of(dim.offset, extent), 0);
  return fmt::format("{} : {}{}", begin, end, slice ? "" : limits(dim, full));
}

std::string ExprPrinter::operator()(const View& view, const std::vector<Expr>& extents) {
  std::vector<std::string> texts;
  bool all = true;
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    const ViewDim& dim = view.dims[d];
    if (dim.axis < 0) {
      texts.push_back(expr(dim.offset, 0) + limits(dim, view.shape[d]));
    } else {
      texts.push_back(range(dim, view.shape[d], extents.at(static_cast<std::size_t>(dim.axis))));
    }
    all &= texts.back() == ":";
  }
  const std::string ranges = all ? "" : fmt::format("[{}]", fmt::join(texts, ", "));
  return base(view) + ranges + permutation(view);
}

std::string ExprPrinter::operator()(const Access& access) {
  std::vector<std::string> texts;
  const std::vector<Expr> places = coordinates(access);
  for (std::size_t d = 0; d < places.size(); ++d) {
    texts.push_back(expr(places[d], 0) + limits(access.view.dims[d], access.view.shape[d]));
  }
  return fmt::format("{}[{}]", base(access.view), fmt::join(texts, ", "));
}

}  // namespace tegula::ir

// Expressions: the same text for one value and, where the value differs from lane to lane, for vectors.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <unordered_set>

#include "codegen/byte_dots.hpp"
#include "codegen/grid_printer.hpp"
#include "codegen/repeated.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

bool is_wide_type(DType type) { return type == f64 || type == i64; }

// Masks have no operators that leave their second operand out.
const char* infix_of(Op op, bool wide) {
  if (wide && op == Op::logical_and) return "&";
  if (wide && op == Op::logical_or) return "|";
  return infix(op);
}

}  // namespace

// A group of so many elements has one number in all lanes: vectors begin at multiples of their lanes.
bool GridPrinter::is_same_in_lanes(const Expr& e) const {
  constexpr std::int64_t most_lanes = 16;
  return lane_ && is_division(e) && power_of_two_divisor(e).value_or(1) >= most_lanes &&
         is_lane_index(e->args[0]);
}

// Whether such groups make it differ from vector to vector.
bool GridPrinter::differs_by_group(const Expr& e) const {
  bool found = false;
  for_each_node(e, [&](const Expr& node) { found |= is_same_in_lanes(node); });
  return found;
}

bool GridPrinter::varies(const Expr& e) const {
  if (!lane_) return false;
  std::unordered_set<const ExprNode*> seen;
  const std::function<bool(const Expr&)> finds = [&](const Expr& node) {
    if (is_same_in_lanes(node) || !seen.insert(node.get()).second) return false;
    if (node->op == Op::variable)
      return varying_.contains(node->variable.get()) || (node->variable == lane_->index && !first_lane_);
    return std::any_of(node->args.begin(), node->args.end(), finds);
  };
  return finds(e);
}

std::string GridPrinter::held_value(const Expr& value) {
  const Expr e = with_unfinished_sums(value);
  shared_.clear();
  repeated_ = repeated_in(e);
  return emit(e);
}

std::string GridPrinter::scalar(const Expr& e) {
  internal_assert(!varies(e), "a value that differs from lane to lane stands where there is one", e->at);
  return held_value(e);
}

std::string GridPrinter::vector(const Expr& e) {
  const std::string text = held_value(e);
  return varies(e) ? text : fmt::format("splat({})", text);
}

std::string GridPrinter::as_long(const Expr& e) {
  return is_constant(e) ? std::to_string(constant_value(e)) : fmt::format("long({})", scalar(e));
}

Expr GridPrinter::expanded(const Expr& e) const {
  return rewrite(e, [&](const Expr& node) {
    if (node->op != Op::variable || !varying_.contains(node->variable.get())) return node;
    const auto value = values_.find(node->variable.get());
    return value == values_.end() ? node : expanded(value->second);
  });
}

std::string GridPrinter::at_first_lane(const Expr& e) {
  const Expr pure = expanded(e);
  first_lane_ = true;
  std::string text = scalar(pure);
  first_lane_ = false;
  return text;
}

std::optional<std::int64_t> GridPrinter::lane_factor(const Expr& e) const {
  if (!varies(e)) return 0;
  if (e->op == Op::variable) {
    if (e->variable == lane_->index) return 1;
    const auto value = values_.find(e->variable.get());
    return value == values_.end() ? std::nullopt : lane_factor(value->second);
  }
  if (e->op == Op::cast && e->type.is_integer() && e->type.bits() >= 32) return lane_factor(e->args[0]);
  if (e->op != Op::add && e->op != Op::sub && e->op != Op::mul) return std::nullopt;
  if (!e->held().is_integer()) return std::nullopt;
  const auto a = lane_factor(e->args[0]), b = lane_factor(e->args[1]);
  if (!a || !b) return std::nullopt;
  if (e->op == Op::add) return *a + *b;
  if (e->op == Op::sub) return *a - *b;
  if (is_constant(e->args[0])) return constant_value(e->args[0]) * *b;
  if (is_constant(e->args[1])) return constant_value(e->args[1]) * *a;
  return std::nullopt;
}

std::string GridPrinter::variable_text(const VariablePtr& variable) {
  if (lane_ && variable == lane_->index) {
    return first_lane_ ? lane_->first : fmt::format("iota({})", lane_->first);
  }
  const auto found = variables_.find(variable.get());
  internal_assert(found != variables_.end(), "a variable is used outside its scope", variable->at);
  return found->second;
}

std::string GridPrinter::emit(const Expr& e) {
  if (e->op == Op::constant) return constant_text(*e);
  if (e->op == Op::variable) return variable_text(e->variable);
  if (const auto found = shared_.find(e.get()); found != shared_.end()) return found->second;
  if (is_same_in_lanes(e)) return fmt::format("({} / {})", lane_->first, *power_of_two_divisor(e));
  std::string text = emit_node(e);
  if (!repeated_.contains(e.get())) return text;
  const std::string name = names_.unique("t");
  out_.line(fmt::format("const {} {} = {};", varies(e) ? vector_type(e->held()) : scalar_type(e->held()),
                        name, text));
  return shared_.emplace(e.get(), name).first->second;
}

Expr GridPrinter::with_unfinished_sums(const Expr& e) const {
  if (unfinished_.empty()) return e;
  return rewrite(e, [&](const Expr& node) {
    if (node->op != Op::variable) return node;
    const auto found = unfinished_.find(node->variable.get());
    return found == unfinished_.end() ? node : found->second;
  });
}

// Large sums are several lets, whose products of bytes meet where the last of them is printed.
bool GridPrinter::is_left_unfinished(const VariablePtr& variable, const Expr& value) {
  constexpr int largest = 1000;
  const Expr whole = with_unfinished_sums(value);
  if (!varies(whole) || whole->size > largest || !sum_of_bytes(whole).is_unfinished) return false;
  varying_.insert(variable.get());
  unfinished_.emplace(variable.get(), whole);
  return true;
}

std::string GridPrinter::emit_vector(const Expr& e) {
  const std::string text = emit(e);
  return varies(e) ? text : fmt::format("splat({})", bare(text));
}

namespace {

// Of the bytes of a variable; sixteen of the table as four words.
std::string looked_up_text(const ByteTable& table, const std::string& word) {
  std::string text = "look_up_bytes(" + word + (table.of_upper_half ? " >> 4" : "");
  for (std::size_t first = 0; first < table.values.size(); first += 4) {
    std::uint32_t all = 0;
    for (std::size_t i = 4; i-- > 0;) all = all << 8 | table.values[first + i];
    text += fmt::format(", {:#x}u", all);
  }
  return text + ")";
}

}  // namespace

std::string GridPrinter::emit_byte_dots(const SumOfBytes& sum) {
  std::string text;
  for (const Expr& other : sum.others) text += (text.empty() ? "" : " + ") + emit_vector(other);
  if (text.empty()) text = "vi{}";
  for (const ByteDot& dot : sum.dots) {
    std::string a = bare(emit_vector(dot.a));
    if (dot.table) a = looked_up_text(*dot.table, a);
    text = fmt::format("dot_bytes({}, {}, {})", text, a, bare(emit_vector(dot.b)));
  }
  return text;
}

std::string GridPrinter::emit_node(const Expr& e) {
  const bool wide = varies(e);
  if (wide && e->op == Op::add && e->held() == i32) {
    if (const SumOfBytes sum = sum_of_bytes(e); !sum.dots.empty()) return emit_byte_dots(sum);
  }
  std::vector<std::string> x;
  for (const Expr& arg : e->args) {
    std::string text = emit(arg);
    x.push_back(wide && !varies(arg) ? fmt::format("splat({})", bare(text)) : text);
  }
  if (e->op == Op::cast) return emit_cast(e, x[0], wide);
  if (e->op == Op::bitcast) return emit_bitcast(e, x[0], wide);
  if (wide && is_shift_or_mask(e)) return emit_shift_or_mask(e, x[0]);
  return emit_operation(e, x, wide);
}

std::optional<std::int64_t> GridPrinter::power_of_two_divisor(const Expr& e) {
  if (!is_division(e) && e->op != Op::mod && e->op != Op::floormod) return std::nullopt;
  const Expr& divisor = e->args[1];
  if (divisor->held().is_floating() || !is_constant(divisor)) return std::nullopt;
  const std::int64_t by = constant_value(divisor);
  return by > 0 && std::has_single_bit(static_cast<std::uint64_t>(by)) ? std::optional(by) : std::nullopt;
}

// Whether a division, or a remainder, is a shift, or a mask: vectors of integers have no division.
bool GridPrinter::is_shift_or_mask(const Expr& e) {
  if (!power_of_two_divisor(e)) return false;
  const Expr& dividend = e->args[0];
  const DType type = dividend->held();
  if (type != i32 && type != u32) return false;
  const bool floors = e->op == Op::floordiv || e->op == Op::floormod;
  return floors || type == u32 || bounds(dividend, facts_).low >= 0;
}

std::string GridPrinter::emit_shift_or_mask(const Expr& e, const std::string& x) const {
  const auto by = static_cast<std::uint64_t>(*power_of_two_divisor(e));
  const std::string amount =
      fmt::format("{}({})", scalar_type(e->held()),
                  is_division(e) ? static_cast<std::uint64_t>(std::countr_zero(by)) : by - 1);
  return fmt::format("({} {} splat({}))", grouped(x), is_division(e) ? ">>" : "&", amount);
}

// Small floats are decoded so: their bits in those of a larger one, times a large power of two.
static bool is_of_scaled_bits(const Expr& e) {
  constexpr double least_power = 0x1p64;
  if (e->op != Op::mul || e->type != f32 || !is_constant(e->args[1]) || e->args[1]->type != f32) return false;
  int exponent = 0;
  const double power = e->args[1]->real;
  return power >= least_power && std::frexp(power, &exponent) == 0.5 && e->args[0]->op == Op::bitcast &&
         e->args[0]->args[0]->type == u32;
}

std::string GridPrinter::emit_operation(const Expr& e, const std::vector<std::string>& x, bool wide) {
  const DType type = e->args[0]->held();
  if (wide && is_of_scaled_bits(e)) return fmt::format("scaled_bits({}, {})", bare(x[0]), bare(x[1]));
  if (const char* symbol = infix_of(e->op, wide)) return infix_text(e, symbol, x);
  switch (e->op) {
    case Op::neg:
      return fmt::format("(-{})", x[0]);
    case Op::bit_not:
      return fmt::format("(~{})", x[0]);
    case Op::logical_not:
      return (wide ? "(~" : "(!") + x[0] + ")";
    case Op::div:
      if (type.is_floating()) return infix_text(e, "/", x);
      return fmt::format("div({}, {})", bare(x[0]), bare(x[1]));
    case Op::isnan:
      if (!type.is_floating()) return wide ? "splat(false)" : "false";
      return fmt::format("isnan({})", bare(x[0]));
    case Op::select:
      if (wide || is_wide_type(e->held()))
        return fmt::format("select({}, {}, {})", bare(x[0]), bare(x[1]), bare(x[2]));
      return choice_text(e, x);
    default:
      break;
  }
  std::string text = std::string(name_of(e->op)) + "(";
  for (std::size_t i = 0; i < x.size(); ++i) text += (i > 0 ? ", " : "") + bare(x[i]);
  return text + ")";
}

// For vectors, `&&` and `||` are bit operations; quotients of integers are calls, or shifts.
std::string GridPrinter::infix_text(const Expr& e, std::string_view symbol,
                                    std::vector<std::string> x) const {
  const bool of_bits = symbol == "&" || symbol == "|";
  for (std::size_t i = 0; i < 2; ++i) {
    const Expr& operand = e->args[i];
    const bool is_shift = !operand->type.is_floating() && (operand->op == Op::div || operand->op == Op::mod);
    if (!of_bits && !is_shift && !needs_parentheses(e->op, operand->op, i == 1)) x[i] = bare(x[i]);
  }
  return fmt::format("({} {} {})", x[0], symbol, x[1]);
}

std::string GridPrinter::emit_cast(const Expr& e, const std::string& x, bool wide) {
  const DType from = e->args[0]->held(), to = e->type;
  if (from == to) return x;
  if (to.is_boolean()) return wide ? fmt::format("to_mask({})", bare(x)) : fmt::format("({} != 0)", x);
  std::string value = bare(x);
  DType type = from;
  if (wide && from.is_boolean()) {
    const bool direct = compute_type(to).bits() == 32;
    type = direct ? compute_type(to) : i32;
    value = fmt::format("mask_to_{}({})", type.name(), value);
  }
  const bool saturates = from.is_floating() && to.bits() < 32 && to.is_integer();
  if (saturates && from == f32) return fmt::format("to_{}({})", to.name(), value);
  if (type != compute_type(to)) value = fmt::format("to_{}({})", compute_type(to).name(), value);
  if (!saturates) return value == bare(x) && to.bits() >= 32 ? x : rounded(to, value);
  const auto bound = [&](long b) {
    const std::string text = fmt::format("{}({})", scalar_type(to), b);
    return wide ? fmt::format("splat({})", text) : text;
  };
  const bool is_unsigned = to.is_unsigned();
  const long high = (1L << (is_unsigned ? to.bits() : to.bits() - 1)) - 1;
  return fmt::format("max(min({}, {}), {})", value, bound(high), bound(is_unsigned ? 0 : -high - 1));
}

std::string GridPrinter::emit_bitcast(const Expr& e, const std::string& x, bool wide) {
  if (e->args[0]->held() == e->type) return x;
  if (e->type.bits() == 32) return fmt::format("as_{}({})", e->type.name(), bare(x));
  return fmt::format("bits_as<{}>({})", wide ? vector_type(e->type) : scalar_type(e->type), bare(x));
}

std::string GridPrinter::name_variable(const VariablePtr& variable) {
  return variables_.insert_or_assign(variable.get(), names_.unique(variable->name)).first->second;
}

std::string GridPrinter::name_vector(const VariablePtr& variable) {
  varying_.insert(variable.get());
  return name_variable(variable);
}

}  // namespace tegula::codegen

#include "codegen/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace tegula::codegen {

void Writer::line(std::string_view text) {
  text_.append(static_cast<std::size_t>(2 * depth_), ' ');
  text_ += text;
  text_ += '\n';
}

void Writer::line(std::string_view text, const Loc& at) {
  line(fmt::format("{}  // {}", text, short_location(at)));
}

void Writer::open(std::string_view text) {
  line(text);
  ++depth_;
}

void Writer::close(std::string_view text) {
  --depth_;
  line(text);
}

void Writer::reopen(std::string_view text) {
  close(text);
  ++depth_;
}

std::string Names::unique(std::string_view wanted) {
  std::string base;
  for (const char c : wanted) base += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  if (base.empty() || std::isdigit(static_cast<unsigned char>(base[0])) != 0) base = "x" + base;
  // Identifiers that begin with an underscore belong to the compiler.
  while (base[0] == '_') base = base.substr(1) + "x";
  std::string name = base + "_";
  const bool is_numbered = std::isdigit(static_cast<unsigned char>(base.back())) != 0;
  const std::string first = base + (is_numbered ? between_ : "");
  for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}{}_", first, i);
  return name;
}

std::string_view scalar_type(DType type) {
  switch (compute_type(type).code) {
    case TypeCode::f32:
      return "float";
    case TypeCode::f64:
      return "double";
    case TypeCode::i32:
      return "int32_t";
    case TypeCode::i64:
      return "int64_t";
    case TypeCode::u32:
      return "uint32_t";
    default:
      return "bool";
  }
}

std::string_view vector_type(DType type) {
  switch (compute_type(type).code) {
    case TypeCode::f32:
      return "vf";
    case TypeCode::f64:
      return "vd";
    case TypeCode::i32:
      return "vi";
    case TypeCode::i64:
      return "vl";
    case TypeCode::u32:
      return "vu";
    default:
      return "vm";
  }
}

std::string_view memory_type(DType type) {
  constexpr std::string_view names[] = {"boolean", "int8_t",   "int16_t", "int32_t", "int64_t",
                                        "uint8_t", "uint32_t", "e4m3",    "e5m2",    "f16",
                                        "bf16",    "float",    "double"};
  return names[static_cast<int>(type.code)];
}

std::string_view tile_type(DType type) { return type.is_boolean() ? "int32_t" : scalar_type(type); }

std::string_view rounding_object(DType from, DType to) {
  if (from == to) return "Unrounded{}";
  switch (to.code) {
    case TypeCode::bf16:
      return "RoundBf16{}";
    case TypeCode::f16:
      return "RoundF16{}";
    case TypeCode::e4m3:
      return "RoundE4m3{}";
    case TypeCode::e5m2:
      return "RoundE5m2{}";
    case TypeCode::i8:
      return "WrapI8{}";
    case TypeCode::i16:
      return "WrapI16{}";
    case TypeCode::u8:
      return "WrapU8{}";
    default:
      return "Unrounded{}";
  }
}

std::string rounded(DType type, std::string text) {
  if (type.bits() >= 32 || type.is_boolean()) return text;
  return fmt::format("{}_{}({})", type.is_floating() ? "round" : "wrap", type.name(), text);
}

namespace {

std::string float_text(double value, bool single) {
  if (std::isnan(value)) return single ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
  if (std::isinf(value)) {
    return fmt::format("({}{})", value < 0 ? "-" : "", single ? "__builtin_inff()" : "__builtin_inf()");
  }
  std::string text = single ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (single) text += "f";
  return std::signbit(value) ? fmt::format("({})", text) : text;
}

}  // namespace

std::string constant_text(const ir::ExprNode& constant) {
  const std::int64_t value = constant.integer;
  switch (compute_type(constant.type).code) {
    case TypeCode::f32:
      return float_text(constant.real, true);
    case TypeCode::f64:
      return float_text(constant.real, false);
    case TypeCode::boolean:
      return value != 0 ? "true" : "false";
    case TypeCode::u32:
      return fmt::format("{}u", value);
    case TypeCode::i64:
      return value == INT64_MIN ? "INT64_MIN" : fmt::format("int64_t({})", value);
    default:
      return value == INT32_MIN ? "INT32_MIN"
             : value < 0        ? fmt::format("({})", value)
                                : std::to_string(value);
  }
}

std::string sum_text(const std::vector<std::string>& terms) {
  std::string result;
  for (const std::string& term : terms) {
    if (term == "0") continue;
    if (!result.empty()) result += " + ";
    result += term;
  }
  return result.empty() ? "0" : result;
}

const char* infix(ir::Op op) {
  switch (op) {
    case ir::Op::add:
      return "+";
    case ir::Op::sub:
      return "-";
    case ir::Op::mul:
      return "*";
    case ir::Op::bit_and:
      return "&";
    case ir::Op::bit_or:
      return "|";
    case ir::Op::bit_xor:
      return "^";
    case ir::Op::eq:
      return "==";
    case ir::Op::ne:
      return "!=";
    case ir::Op::lt:
      return "<";
    case ir::Op::le:
      return "<=";
    case ir::Op::gt:
      return ">";
    case ir::Op::ge:
      return ">=";
    case ir::Op::logical_and:
      return "&&";
    case ir::Op::logical_or:
      return "||";
    default:
      return nullptr;
  }
}

std::string bare(const std::string& text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return text;
  int depth = 0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return text;
  }
  return text.substr(1, text.size() - 2);
}

std::string grouped(const std::string& text) {
  const std::string inner = bare(text);
  const bool is_word =
      std::all_of(inner.begin(), inner.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  return is_word ? inner : "(" + inner + ")";
}

namespace {

// From those that bind least; 0: always in parentheses.
int precedence(ir::Op op) {
  switch (op) {
    case ir::Op::logical_or:
      return 1;
    case ir::Op::logical_and:
      return 2;
    case ir::Op::eq:
    case ir::Op::ne:
    case ir::Op::lt:
    case ir::Op::le:
    case ir::Op::gt:
    case ir::Op::ge:
      return 3;
    case ir::Op::add:
    case ir::Op::sub:
      return 4;
    case ir::Op::mul:
    case ir::Op::div:
    case ir::Op::mod:
      return 5;
    default:
      return 0;
  }
}

}  // namespace

bool needs_parentheses(ir::Op operation, ir::Op operand, bool is_second) {
  const int outer = precedence(operation), inner = precedence(operand);
  if (outer == 0 || inner == 0) return true;
  if (outer == 1 && inner == 2) return true;  // && inside of ||
  if (outer == 3 && inner == 3) return true;  // a comparison of comparisons
  return inner < outer || (inner == outer && is_second);
}

std::string choice_text(const ir::Expr& e, const std::vector<std::string>& operands) {
  // Without its parentheses a choice in front of `?` would end there.
  const bool chooses = e->args[0]->op == ir::Op::select;
  return fmt::format("({} ? {} : {})", chooses ? operands[0] : bare(operands[0]), operands[1], operands[2]);
}

}  // namespace tegula::codegen

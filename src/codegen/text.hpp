// Pieces of C++ text: lines with indentation, unique names, types and constants.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expr.hpp"

namespace tegula::codegen {

class Writer {
 public:
  void line(std::string_view text);
  // A line with the user's line behind it.
  void line(std::string_view text, const Loc& at);
  void open(std::string_view text);  // ends with `{`
  void close(std::string_view text = "}");
  void reopen(std::string_view text);  // closes one and opens the next: `} else {`
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

// Identifiers that clash with no other: they end in an underscore, which no keyword does, nothing in the
// device headers, and no name that the printers make up themselves, such as that of a stride.
class Names {
 public:
  // `between` stands between a name that ends in a digit and the number that makes it unique.
  explicit Names(std::string_view between = "") : between_(between) {}
  std::string unique(std::string_view wanted);

 private:
  std::string between_;
  std::set<std::string, std::less<>> taken_;
};

// `float`, `vf`: the type in which values of a type are computed; a boolean is bool or a mask.
std::string_view scalar_type(DType type);
std::string_view vector_type(DType type);
// `bf16`: the type of an element of a tensor, and that of a tile, which holds computed values.
std::string_view memory_type(DType type);
std::string_view tile_type(DType type);
// `RoundBf16{}`: what elements of memory of type `from` go through on their way into a tile of type `to`.
std::string_view rounding_object(DType from, DType to);
// The value, in the computed type, as an element of `type`: `round_bf16(x)`.
std::string rounded(DType type, std::string text);
std::string constant_text(const ir::ExprNode& constant);
// `&&`: what stands between two operands; nullptr where an operation is called.
const char* infix(ir::Op op);
std::string sum_text(const std::vector<std::string>& terms);
// An expression as a statement or an argument has it: without parentheses around all of it.
std::string bare(const std::string& text);
// An expression as an operand has it: a name or a number as it is, all else in parentheses.
std::string grouped(const std::string& text);
// Whether an operand, the first or the second, needs parentheses for the compiler, or for readers who do not
// know the precedence of bit operations by heart.
bool needs_parentheses(ir::Op operation, ir::Op operand, bool is_second);
// A choice between two values, of which the condition and the values have parentheses where they need them.
std::string choice_text(const ir::Expr& e, const std::vector<std::string>& operands);

}  // namespace tegula::codegen

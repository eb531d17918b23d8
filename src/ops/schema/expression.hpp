// Arithmetic of dims and options: the notation for extents, conditions and amounts of work in operator
// tables.
//
// Text: `ceildiv(queries, q_block)`, `transpose_a ? k : m`, `layout=bhsd`, `group*kv_heads`. Operations are
// + - * / % (of integers; / and % round down), < <= > >= ==, &, c ? a : b, ceildiv, min, max, and rsqrt of
// real numbers. A name is a dim, an option, or a tensor, which is 1 if it is given; `option=choice` asks for
// a choice.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tegula::ops {

struct Expression {
  enum class Op : std::uint8_t {
    constant,   // value
    name,       // name: a dim, an option or a tensor
    is_choice,  // whether the option `name` is `choice`
    add,
    subtract,
    multiply,
    divide,
    modulo,
    ceildiv,
    min,
    max,
    less,
    less_equal,
    greater,
    greater_equal,
    equal,
    both,
    select,  // of a condition and two values
    rsqrt,   // 1/√ of a real number
  };

  Op op = Op::constant;
  std::int64_t value = 0;
  std::string name, choice;
  std::vector<Expression> args;
  // Position of the name among all names of an operator, and of the choice among those of its option.
  int position = -1;

  static Expression parse(std::string_view text);
  // Values of the names by their positions.
  std::int64_t evaluate(const std::int64_t* values) const;
  double evaluate_real(const std::int64_t* values) const;
  std::string text() const;

  bool is_name() const { return op == Op::name; }
  void each_name(const std::function<void(Expression&)>& body);
  void each_name(const std::function<void(const Expression&)>& body) const;
};

// The operation's name in exported tables: "+", "ceildiv", "?".
std::string_view name_of(Expression::Op op);

}  // namespace tegula::ops

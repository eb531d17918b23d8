#include "ops/schema/expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tegula/error.hpp"

namespace tegula::ops {

std::string_view name_of(Expression::Op op) {
  constexpr std::string_view names[] = {"constant", "name", "is", "+", "-",  "*",  "/", "%", "ceildiv", "min",
                                        "max",      "<",    "<=", ">", ">=", "==", "&", "?", "rsqrt"};
  return names[static_cast<int>(op)];
}

namespace {

using Op = Expression::Op;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expression whole() {
    Expression result = choice();
    if (at_ != text_.size()) fail();
    return result;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    skip();
    return true;
  }
  [[noreturn]] void fail() const {
    throw InternalError(fmt::format("the table's expression '{}' is wrong at {}", text_, at_));
  }

  static Expression made(Op op, std::vector<Expression> args) {
    Expression result;
    result.op = op, result.args = std::move(args);
    return result;
  }

  Expression choice() {
    Expression condition = conjunction();
    if (!take("?")) return condition;
    Expression yes = choice();
    if (!take(":")) fail();
    return made(Op::select, {std::move(condition), std::move(yes), choice()});
  }
  Expression conjunction() {
    Expression left = comparison();
    while (take("&")) left = made(Op::both, {std::move(left), comparison()});
    return left;
  }
  Expression comparison() {
    Expression left = sum();
    constexpr std::pair<std::string_view, Op> all[] = {{"<=", Op::less_equal},
                                                       {">=", Op::greater_equal},
                                                       {"==", Op::equal},
                                                       {"<", Op::less},
                                                       {">", Op::greater}};
    for (const auto& [token, op] : all)
      if (take(token)) return made(op, {std::move(left), sum()});
    return left;
  }
  Expression sum() {
    Expression left = product();
    while (true) {
      if (take("+"))
        left = made(Op::add, {std::move(left), product()});
      else if (take("-"))
        left = made(Op::subtract, {std::move(left), product()});
      else
        return left;
    }
  }
  Expression product() {
    Expression left = atom();
    while (true) {
      if (take("*"))
        left = made(Op::multiply, {std::move(left), atom()});
      else if (take("/"))
        left = made(Op::divide, {std::move(left), atom()});
      else if (take("%"))
        left = made(Op::modulo, {std::move(left), atom()});
      else
        return left;
    }
  }
  std::string word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    if (at_ == begin) fail();
    const std::string result(text_.substr(begin, at_ - begin));
    skip();
    return result;
  }
  Expression call(Op op) {
    Expression first = choice();
    if (op == Op::rsqrt) {
      if (!take(")")) fail();
      return made(op, {std::move(first)});
    }
    if (!take(",")) fail();
    Expression result = made(op, {std::move(first), choice()});
    if (!take(")")) fail();
    return result;
  }
  Expression atom() {
    skip();
    if (take("-")) return made(Op::subtract, {Expression(), atom()});
    if (take("(")) {
      Expression inner = choice();
      if (!take(")")) fail();
      return inner;
    }
    Expression result;
    const std::string first = word();
    if (std::isdigit(static_cast<unsigned char>(first[0])) != 0) {
      result.value = std::stoll(first);
      return result;
    }
    for (const Op op : {Op::ceildiv, Op::min, Op::max, Op::rsqrt})
      if (first == name_of(op) && take("(")) return call(op);
    result.op = Op::name, result.name = first;
    if (text_.substr(at_, 2) != "==" && take("=")) result.op = Op::is_choice, result.choice = word();
    return result;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

template <class T>
T floor_of(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_floating_point_v<T>) return std::floor(a / b);
  const T quotient = a / b;
  return quotient * b > a ? quotient - 1 : quotient;
}

template <class T>
T value_of(const Expression& e, const std::int64_t* values) {
  const auto arg = [&](std::size_t i) { return value_of<T>(e.args[i], values); };
  switch (e.op) {
    case Op::constant:
      return static_cast<T>(e.value);
    case Op::name:
      return static_cast<T>(values[e.position]);
    case Op::is_choice:
      return static_cast<T>(values[e.position] == e.value);
    case Op::add:
      return arg(0) + arg(1);
    case Op::subtract:
      return arg(0) - arg(1);
    case Op::multiply:
      return arg(0) * arg(1);
    case Op::divide:
      return floor_of(arg(0), arg(1));
    case Op::modulo:
      return arg(0) - floor_of(arg(0), arg(1)) * arg(1);
    case Op::ceildiv:
      return arg(1) == 0 ? 0 : floor_of(arg(0) + arg(1) - 1, arg(1));
    case Op::min:
      return std::min(arg(0), arg(1));
    case Op::max:
      return std::max(arg(0), arg(1));
    case Op::less:
      return static_cast<T>(arg(0) < arg(1));
    case Op::less_equal:
      return static_cast<T>(arg(0) <= arg(1));
    case Op::greater:
      return static_cast<T>(arg(0) > arg(1));
    case Op::greater_equal:
      return static_cast<T>(arg(0) >= arg(1));
    case Op::equal:
      return static_cast<T>(arg(0) == arg(1));
    case Op::both:
      return static_cast<T>(arg(0) != 0 && arg(1) != 0);
    case Op::select:
      return arg(0) != 0 ? arg(1) : arg(2);
    case Op::rsqrt:
      return static_cast<T>(1 / std::sqrt(static_cast<double>(arg(0))));
  }
  throw InternalError("unknown operation of an expression");
}

int strength(Op op) {
  switch (op) {
    case Op::select:
      return 0;
    case Op::both:
      return 1;
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
    case Op::equal:
      return 2;
    case Op::add:
    case Op::subtract:
      return 3;
    case Op::multiply:
    case Op::divide:
    case Op::modulo:
      return 4;
    default:
      return 5;
  }
}

std::string written(const Expression& e, int least) {
  if (e.op == Op::constant) return std::to_string(e.value);
  if (e.op == Op::name) return e.name;
  if (e.op == Op::is_choice) return e.name + "=" + e.choice;
  if (e.op == Op::rsqrt) return fmt::format("1/sqrt({})", written(e.args[0], 0));
  if (e.op == Op::ceildiv || e.op == Op::min || e.op == Op::max)
    return fmt::format("{}({}, {})", name_of(e.op), written(e.args[0], 0), written(e.args[1], 0));
  const int own = strength(e.op);
  const std::string text =
      e.op == Op::select
          ? fmt::format("{} ? {} : {}", written(e.args[0], 1), written(e.args[1], 0), written(e.args[2], 0))
          : fmt::format("{} {} {}", written(e.args[0], own), name_of(e.op), written(e.args[1], own + 1));
  return own < least ? "(" + text + ")" : text;
}

template <class E, class F>
void visit_names(E& e, const F& body) {
  if (e.op == Op::name || e.op == Op::is_choice) body(e);
  for (auto& arg : e.args) visit_names(arg, body);
}

}  // namespace

Expression Expression::parse(std::string_view text) { return Parser(text).whole(); }

std::int64_t Expression::evaluate(const std::int64_t* values) const {
  return value_of<std::int64_t>(*this, values);
}

double Expression::evaluate_real(const std::int64_t* values) const { return value_of<double>(*this, values); }

std::string Expression::text() const { return written(*this, 0); }

void Expression::each_name(const std::function<void(Expression&)>& body) { visit_names(*this, body); }
void Expression::each_name(const std::function<void(const Expression&)>& body) const {
  visit_names(*this, body);
}

}  // namespace tegula::ops

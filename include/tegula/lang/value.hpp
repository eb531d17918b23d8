// Values in a tile program: immutable, computed at the point where they are written.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "tegula/dtype.hpp"
#include "tegula/error.hpp"

namespace tegula::ir {
struct ExprNode;
struct Variable;
struct View;
struct Kernel;
}  // namespace tegula::ir

TEGULA_API_BEGIN
namespace tegula::lang {

using tegula::boolean, tegula::i8, tegula::i16, tegula::i32, tegula::i64, tegula::u8, tegula::u32;
using tegula::DType, tegula::Loc, tegula::ProgramError;
using tegula::e4m3, tegula::e5m2, tegula::f16, tegula::bf16, tegula::f32, tegula::f64;

inline constexpr float inf = std::numeric_limits<float>::infinity();
inline constexpr float log2e = 1.4426950408889634f;

class Element;
class Var;

template <class T>
concept Number = std::is_arithmetic_v<T>;

namespace detail {
// A number of C++ in a program.
struct Literal {
  enum class Kind { boolean, integer, natural, real } kind;
  std::int64_t whole = 0;
  double real = 0;

  template <Number T>
  explicit Literal(T value) {
    if constexpr (std::is_floating_point_v<T>)
      kind = Kind::real, real = static_cast<double>(value);
    else
      kind = std::is_same_v<T, bool>                   ? Kind::boolean
             : std::is_unsigned_v<T> && sizeof(T) == 4 ? Kind::natural
                                                       : Kind::integer,
      whole = static_cast<std::int64_t>(value);
  }
};

// A function for the time of a call that takes it. Two pointers: a program has hundreds of these, and
// std::function would instantiate several functions for each.
template <class Signature>
class FunctionRef;
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class F>
  FunctionRef(const F& function)
      : function_(&function), call_([](const void* own, Arguments... arguments) -> Result {
          return (*const_cast<F*>(static_cast<const F*>(own)))(static_cast<Arguments>(arguments)...);
        }) {}
  Result operator()(Arguments... arguments) const {
    return call_(function_, static_cast<Arguments>(arguments)...);
  }

 private:
  const void* function_;
  Result (*call_)(const void*, Arguments...);
};
}  // namespace detail

// What programs copy and destroy for every operation, such as values, is copied and destroyed in the library:
// programs are shorter, and compile faster.

// A value. It never changes and cannot be assigned; use a Var for a value that changes. It does not convert
// to a C++ `bool`, because a C++ `if` runs while the program is being built: use when() or select().
class Expr {
 public:
  using Node = std::shared_ptr<const ir::ExprNode>;

  // A literal takes the type of the other operand.
  template <Number T>
  Expr(T value) : Expr(detail::Literal(value)) {}
  explicit Expr(const detail::Literal& value);
  // Reads the element, here.
  Expr(Element&& place);
  Expr(const Element&) = delete;  // `auto x = a(i)` keeps a place, not a value: write `Expr x = a(i);`
  // Reads the variable, here.
  Expr(const Var& variable, Loc at = Loc::current());
  Expr(Node node, bool literal);
  Expr(const Expr&);
  ~Expr();
  Expr& operator=(const Expr&) = delete;  // an Expr never changes: what changes is a Var, `Var x = 0; x = e;`
  template <class T>
  void operator+=(const T&) = delete;  // an Expr never changes: what changes is a Var, `Var x = 0; x += e;`
  template <class T>
  void operator-=(const T&) = delete;  // an Expr never changes: what changes is a Var, `Var x = 0; x -= e;`
  template <class T>
  void operator*=(const T&) = delete;  // an Expr never changes: what changes is a Var, `Var x = 1; x *= e;`
  template <class T>
  void operator/=(const T&) = delete;  // an Expr never changes: what changes is a Var, `Var x = 1; x /= e;`

  DType type() const;
  bool is_literal() const { return literal_; }
  const Node& node() const { return node_; }

 private:
  Node node_;
  bool literal_;
};

namespace detail {
// If a template of this library or of the C++ library, such as emplace_back(), evaluates a default argument,
// it is a location in a header. This returns the last location in the user's code instead.
Loc user_place(const Loc& at);
// A first member that cannot be initialised by position, so that options are named: `{.threads = 128}`.
struct OptionsAreNamed {
  explicit OptionsAreNamed() = default;
};
// Options that are given by position, `{128}`, in place of the structs that have such a member.
struct Unnamed {
  template <Number T, class... More>
  Unnamed(T, const More&...);
};
}  // namespace detail

// What operators and functions take: a value, with the user's line.
struct Operand : Expr {
  Loc at;
  template <Number T>
  Operand(T value, Loc at = Loc::current()) : Operand(detail::Literal(value), at) {}
  Operand(const detail::Literal& value, Loc at);
  Operand(const Expr& value, Loc at = Loc::current());
  Operand(Element&& place, Loc at = Loc::current());
  Operand(const Element&) = delete;  // `auto x = a(i)` keeps a place, not a value: write `Expr x = a(i);`
  Operand(const Var& variable, Loc at = Loc::current());
  Operand(const Operand&);
  Operand& operator=(const Operand& other);  // for containers, such as Extents
};

namespace detail {
// An operand of the statement at `at`, unless it has a location of its own.
template <class T>
Operand operand_at(T&& x, const Loc& at) {
  if constexpr (std::derived_from<std::remove_cvref_t<T>, Operand>)
    return std::forward<T>(x);
  else
    return Operand(std::forward<T>(x), at);
}
}  // namespace detail

// The index of a grid or a loop: i32.
class Index : public Expr {
 public:
  explicit Index(Node node) : Expr(std::move(node), false) {}
  // Otherwise Index(0) would be an Index of no node.
  template <std::integral T>
  explicit Index(T value) : Expr(value) {}
};

// An extent that the shapes of a call determine, i32. A Dim used in several shapes has one value; `name` is
// used in messages.
class Dim : public Expr {
 public:
  explicit Dim(const std::string& name, Loc at = Loc::current());
  // A promise that is checked at every call.
  Dim& multiple_of(int factor, Loc at = Loc::current());
};

// A function that records statements of a program may open a Trace; errors inside it then also name the line
// of its caller.
class Trace {
 public:
  Trace(const char* name, Loc at);
  ~Trace();
  Trace(const Trace&) = delete;
};

// The operands of arithmetic must be of one kind (see docs/language.md, "Values and types").
[[nodiscard]] Expr operator+(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator-(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator*(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator/(const Operand& a, const Operand& b);  // integers: truncates
[[nodiscard]] Expr operator%(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator&(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator|(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator^(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator<<(const Operand& a, const Operand& b);  // a count outside the width gives 0
[[nodiscard]] Expr operator>>(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator==(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator!=(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator<(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator<=(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator>(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator>=(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator&&(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator||(const Operand& a, const Operand& b);
[[nodiscard]] Expr operator!(const Operand& a);
[[nodiscard]] Expr operator-(const Operand& a);
[[nodiscard]] Expr operator~(const Operand& a);

[[nodiscard]] Expr max(const Operand& a, const Operand& b);  // if one operand is NaN, the other one
[[nodiscard]] Expr min(const Operand& a, const Operand& b);
[[nodiscard]] Expr clamp(const Operand& x, const Operand& low, const Operand& high);
[[nodiscard]] Expr select(const Operand& condition, const Operand& a, const Operand& b);
[[nodiscard]] Expr abs(const Operand& x);
[[nodiscard]] Expr popcount(const Operand& x);  // the number of 1 bits, in the type in which x is computed
[[nodiscard]] Expr mul_high(const Operand& a, const Operand& b);  // for u32: the upper 32 bits of the product
[[nodiscard]] Expr floordiv(const Operand& a, const Operand& b);
[[nodiscard]] Expr floormod(const Operand& a, const Operand& b);
[[nodiscard]] Expr ceildiv(const Operand& a, const Operand& b);
template <std::integral A, std::integral B>
constexpr auto ceildiv(A a, B b) {
  return (a + b - 1) / b;
}

// For floats.
[[nodiscard]] Expr exp(const Operand& x);
[[nodiscard]] Expr exp2(const Operand& x);
[[nodiscard]] Expr log(const Operand& x);
[[nodiscard]] Expr log2(const Operand& x);
[[nodiscard]] Expr sqrt(const Operand& x);
[[nodiscard]] Expr rsqrt(const Operand& x);
[[nodiscard]] Expr rcp(const Operand& x);
[[nodiscard]] Expr tanh(const Operand& x);
[[nodiscard]] Expr sin(const Operand& x);
[[nodiscard]] Expr cos(const Operand& x);
[[nodiscard]] Expr erf(const Operand& x);
[[nodiscard]] Expr pow(const Operand& x, const Operand& exponent);  // as C's pow()
[[nodiscard]] Expr round(const Operand& x);                         // to the nearest integer, ties to even
[[nodiscard]] Expr floor(const Operand& x);
[[nodiscard]] Expr ceil(const Operand& x);
[[nodiscard]] Expr fma(const Operand& a, const Operand& b, const Operand& c);  // a · b + c, rounded once
[[nodiscard]] Expr isnan(const Operand& x);
// The same bits as another type of the same width: f32, i32, u32; f64, i64.
[[nodiscard]] Expr bitcast(const Operand& x, DType type);

// Four random u32 words: Philox4x32-10 of a counter of four words and a key of two words. Equal arguments
// give equal words on every executor; a program can use the index of an element as the counter, in any order.
struct RandomWords {
  Expr x, y, z, w;
};
[[nodiscard]] RandomWords philox(const std::array<Expr, 4>& counter, const std::array<Expr, 2>& key,
                                 Loc at = Loc::current());
// Converts a random word to an f32, uniform in [0, 1): a multiple of 2^−24.
[[nodiscard]] Expr uniform(const Operand& word);

}  // namespace tegula::lang
TEGULA_API_END

#include "ir/affine.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tegula::ir {
namespace {

// A larger expression is an atom: taking it apart would cost more than it tells.
constexpr int largest = 256;

bool scale(std::int64_t& number, std::int64_t factor) {
  return !__builtin_mul_overflow(number, factor, &number);
}

bool add_term(Affine& a, const Expr& atom, std::int64_t factor) {
  for (auto term = a.terms.begin(); term != a.terms.end(); ++term) {
    if (!equal(term->atom, atom)) continue;
    if (__builtin_add_overflow(term->factor, factor, &term->factor)) return false;
    if (term->factor == 0) a.terms.erase(term);
    return true;
  }
  a.terms.push_back({atom, factor});
  return true;
}

std::optional<Affine> product(const Affine& a, const Affine& b) {
  if (a.is_constant()) return sum({}, b, a.constant);
  if (b.is_constant()) return sum({}, a, b.constant);
  return std::nullopt;
}

std::optional<Affine> taken_apart(const Expr& e) {
  if (e->size > largest || !has_affine_form(e->type)) return std::nullopt;
  switch (e->op) {
    case Op::constant:
      return Affine{{}, e->integer};
    case Op::add:
      return sum(affine(e->args[0]), affine(e->args[1]), 1);
    case Op::sub:
      return sum(affine(e->args[0]), affine(e->args[1]), -1);
    case Op::neg:
      return sum({}, affine(e->args[0]), -1);
    case Op::mul:
      return product(affine(e->args[0]), affine(e->args[1]));
    default:
      return std::nullopt;
  }
}

bool fits(DType type, std::int64_t number) {
  return type == i64 || number == static_cast<std::int32_t>(number);
}

Expr scaled(const Affine::Term& term, std::int64_t factor, DType type, const Loc& at) {
  if (factor == 1) return term.atom;
  return make(Op::mul, type, {term.atom, constant(type, factor, at)}, at);
}

// Positive terms first, so that nothing needs to be negated where there is one.
std::vector<Affine::Term> in_order(const Affine& a) {
  std::vector<Affine::Term> terms = a.terms;
  std::stable_partition(terms.begin(), terms.end(), [](const Affine::Term& t) { return t.factor > 0; });
  return terms;
}

bool all_fit(const Affine& a, DType type) {
  const auto both = [&](std::int64_t n) { return n != INT64_MIN && fits(type, n) && fits(type, -n); };
  return both(a.constant) &&
         std::all_of(a.terms.begin(), a.terms.end(), [&](const Affine::Term& t) { return both(t.factor); });
}

std::int64_t common_factor(const Affine& a) {
  std::int64_t result = a.constant;
  for (const Affine::Term& term : a.terms) result = std::gcd(result, term.factor);
  return a.is_constant() ? 1 : result;
}

Affine divided(const Affine& a, std::int64_t by) {
  Affine result = a;
  for (Affine::Term& term : result.terms) term.factor /= by;
  result.constant /= by;
  return result;
}

Expr written_out(const Affine& a, DType type, const Loc& at) {
  Expr result;
  std::int64_t left = a.constant;
  for (const Affine::Term& term : in_order(a)) {
    if (!result && term.factor < 0 && left != 0) result = constant(type, std::exchange(left, 0), at);
    if (!result && term.factor == -1) {
      result = make(Op::neg, type, {term.atom}, at);
    } else if (!result) {
      result = scaled(term, term.factor, type, at);
    } else if (term.factor > 0) {
      result = make(Op::add, type, {result, scaled(term, term.factor, type, at)}, at);
    } else {
      result = make(Op::sub, type, {result, scaled(term, -term.factor, type, at)}, at);
    }
  }
  if (!result) return constant(type, left, at);
  if (left == 0) return result;
  return make(left > 0 ? Op::add : Op::sub, type, {result, constant(type, left > 0 ? left : -left, at)}, at);
}

}  // namespace

Affine affine(const Expr& e) {
  if (auto form = taken_apart(e)) return *form;
  return {{{e, 1}}, 0};
}

std::optional<Affine> sum(const Affine& a, const Affine& b, std::int64_t factor) {
  Affine result = a;
  if (factor == 0) return result;
  std::int64_t constant = b.constant;
  if (!scale(constant, factor) || __builtin_add_overflow(result.constant, constant, &result.constant)) {
    return std::nullopt;
  }
  for (const Affine::Term& term : b.terms) {
    std::int64_t multiple = term.factor;
    if (!scale(multiple, factor) || !add_term(result, term.atom, multiple)) return std::nullopt;
  }
  return result;
}

std::optional<Affine> difference(const Affine& a, const Affine& b) { return sum(a, b, -1); }

bool equal(const Affine& a, const Affine& b) {
  const auto left = difference(a, b);
  return left && left->is_constant() && left->constant == 0;
}

Expr to_expr(const Affine& a, DType type, const Loc& at) {
  if (!all_fit(a, type)) return nullptr;
  const Expr sum = written_out(a, type, at);
  const std::int64_t common = common_factor(a);
  if (common <= 1) return sum;
  const Expr product =
      make(Op::mul, type, {written_out(divided(a, common), type, at), constant(type, common, at)}, at);
  return product->size < sum->size ? product : sum;
}

}  // namespace tegula::ir

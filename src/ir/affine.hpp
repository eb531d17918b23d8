// Integer expressions as sums of multiples: 3·i + j − 5. Everything that is not a sum, a difference or a
// multiple (a division, a minimum, a value read) is an atom.
//
// An i32 or i64 operation that overflows is an error of the program (ir.hpp), so here none does: the sum is
// that of the mathematical integers. Expressions of other types are atoms.
#pragma once
#include <optional>
#include <vector>

#include "ir/expr.hpp"

namespace tegula::ir {

struct Affine {
  struct Term {
    Expr atom;
    std::int64_t factor;  // never zero
  };
  std::vector<Term> terms;  // of different atoms, in the order in which the expression mentions them
  std::int64_t constant = 0;

  bool is_constant() const { return terms.empty(); }
};

inline bool has_affine_form(DType type) { return type == i32 || type == i64; }

Affine affine(const Expr& e);
// a + factor · b, nothing if a number does not fit 64 bits.
std::optional<Affine> sum(const Affine& a, const Affine& b, std::int64_t factor);
std::optional<Affine> difference(const Affine& a, const Affine& b);
bool equal(const Affine& a, const Affine& b);

// The shortest expression for the sum; null if a number does not fit `type`.
Expr to_expr(const Affine& a, DType type, const Loc& at);

}  // namespace tegula::ir

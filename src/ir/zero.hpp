// Whether fills and values are zero, for tiles that hardware clears.
#pragma once
#include "ir/expr.hpp"

namespace tegula::ir {

// Whether an expression, which may be missing, leaves zeros.
inline bool is_zero(const Expr& e) {
  return !e || (is_constant(e) && (e->held().is_floating() ? e->real == 0 : e->integer == 0));
}

}  // namespace tegula::ir

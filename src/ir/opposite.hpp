// Comparisons and their opposites.
#pragma once
#include "ir/expr.hpp"

namespace tegula::ir {

// The comparison that holds where this one does not, for values that are ordered.
inline Op opposite(Op comparison) {
  switch (comparison) {
    case Op::eq:
      return Op::ne;
    case Op::ne:
      return Op::eq;
    case Op::lt:
      return Op::ge;
    case Op::le:
      return Op::gt;
    case Op::gt:
      return Op::le;
    default:
      return Op::lt;
  }
}

}  // namespace tegula::ir

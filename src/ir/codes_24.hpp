// Metadata of 2:4 sparse matrices in the format of gemm_sparse (include/tegula/lang/sparse.hpp): the elements
// of the dense matrix.
#pragma once
#include "ir/expr.hpp"

namespace tegula::ir {

// The four bits that a byte of metadata has for a group of four elements along k, the first or the second of
// its two by the group's number.
Expr code_24(const Expr& byte, const Expr& group, const Loc& at);
// Two positions of two bits: those of a code, of which 0 says 0 and 1.
Expr positions_24(const Expr& code, const Loc& at);
// Element e of the group: one of its values if it stands there, else 0.
Expr element_24(const Expr& positions, const Expr& first, const Expr& second, int e, const Loc& at);

}  // namespace tegula::ir

// Simplifies expressions and programs without changing their meaning.
//
// If the original is valid and does not overflow, the simplified expression has the same value, bit for bit.
// Floats are not reassociated, and an operation on them is dropped only if it changes no value (x·1, not
// x·0).
#pragma once
#include "ir/bounds.hpp"
#include "ir/kernel.hpp"

namespace tegula::ir {

Expr simplify(const Expr& e, const Facts& facts);
// Every expression for itself; the statements stay what they are, one by one.
Body simplify_expressions(const Body& body);

// Expressions and limits of views are simplified with what loops, branches and requirements say about their
// variables; decided branches, empty loops, and lets and loads without use are dropped.
Kernel simplify(const Kernel& kernel);

}  // namespace tegula::ir

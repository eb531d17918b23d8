// The rewrite rules of the simplifier. Each takes a node with simplified operands and returns its
// replacement, or null.
#pragma once
#include <span>

#include "ir/bounds.hpp"

namespace tegula::ir {

struct RewriteRule {
  const char* name;
  Op first, last;  // the operations it is tried on
  Expr (*apply)(const Expr& e, const Facts& facts);
};

std::span<const RewriteRule> value_rules();     // constants, identities, conversions
std::span<const RewriteRule> logic_rules();     // bools and select
std::span<const RewriteRule> sum_rules();       // sums, comparisons, min and max
std::span<const RewriteRule> division_rules();  // quotients and remainders

}  // namespace tegula::ir

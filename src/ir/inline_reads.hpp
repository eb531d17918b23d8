// Which reads may be printed where their value is used, as the user wrote them.
#pragma once
#include <unordered_map>
#include <vector>

#include "ir/stmt.hpp"

namespace tegula::ir {

// How often each variable would be written if expressions were printed as trees; saturates.
using UseCounts = std::unordered_map<const Variable*, int>;
UseCounts count_uses(const Body& body);
void count_uses(const Expr& e, UseCounts& counts);

// For each statement of `body`: whether it is a read (a Load, or a Let of a mutable variable) whose only use
// is in a later statement of the same body, or in `tail`, which is evaluated after it, and nothing that
// changes what it reads stands in between.
std::vector<bool> inlined_reads(const Body& body, const Expr& tail, const UseCounts& counts);

}  // namespace tegula::ir

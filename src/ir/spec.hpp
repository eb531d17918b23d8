// The rules that depend only on the node itself. Each is a sentence and a predicate; the first that fails is
// returned.
#pragma once
#include <optional>
#include <string_view>

#include "ir/kernel.hpp"

namespace tegula::ir {

using Broken = std::optional<std::string_view>;

// Checks one node of an expression, assuming that its operands are valid.
Broken broken_rule(const ExprNode& e);
Broken broken_rule(const View& view);
// Checks one statement, assuming that its expressions and views are valid.
Broken broken_rule(const Stmt& stmt);
Broken broken_rule(const Grid& grid);
Broken broken_rule(const Buffer& buffer);

}  // namespace tegula::ir

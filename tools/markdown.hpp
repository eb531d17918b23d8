// Operators as pages of documentation, from their tables.
#pragma once
#include <string>

#include "ops/schema/table.hpp"

namespace tegula::tool {

// A row for every operator that is declared by a table: its name, what it does, tensors and gradient.
std::string operators_in_markdown();
// What each does, without gradients, with a link to its page in `folder`: for other documents.
std::string operators_in_brief(const std::string& folder);
// A page for one: dims and dtypes of tensors, options, rules, gradient, examples and source.
std::string operator_in_markdown(const ops::OperatorSchema& schema);

}  // namespace tegula::tool

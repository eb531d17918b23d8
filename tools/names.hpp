// Operators by name, with a hint to those who misspell one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/registry.hpp"

namespace tegula::tool {

// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other.
int edit_distance(std::string_view one, std::string_view other);
// The names that a typing error away from `name` may be, nearest first; or that begin with it.
std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& names);
// `'gem' is no operator; did you mean gemm? There are gemm, …`: for any kind of thing.
std::string unknown_name(const std::string& kind, const std::string& name,
                         const std::vector<std::string>& names);

// An unknown name is an ArgumentError that says which ones are near.
const ops::Operator& operator_named(const std::string& name);

}  // namespace tegula::tool

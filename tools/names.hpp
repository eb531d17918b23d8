// Finds operators by name, with a hint for misspelt names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/registry.hpp"
#include "runtime/call/spelling.hpp"

namespace tegula::tool {

// `there is no operator 'gem'; did you mean gemm? There are: gemm, …`: for any kind of thing.
std::string unknown_name(const std::string& kind, const std::string& name,
                         const std::vector<std::string>& names);

// An unknown name is an ArgumentError that says which ones are near.
const ops::Operator& operator_named(const std::string& name);

}  // namespace tegula::tool

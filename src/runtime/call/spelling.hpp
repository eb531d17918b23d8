// Suggests the intended name for one that does not exist.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tegula {

// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other.
int edit_distance(std::string_view one, std::string_view other);
// The names that a typing error away from `name` may be, nearest first; or that begin with it.
std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& names);
// `; did you mean gemm or gemv?`, or nothing.
std::string spelling_hint(const std::string& name, const std::vector<std::string>& names);

}  // namespace tegula

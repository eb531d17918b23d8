#include "names.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tegula/error.hpp"

namespace tegula::tool {

int edit_distance(std::string_view one, std::string_view other) {
  const std::size_t n = one.size(), m = other.size();
  std::vector<std::vector<int>> cost(n + 1, std::vector<int>(m + 1));
  for (std::size_t i = 0; i <= n; ++i) cost[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= m; ++j) cost[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = 1; j <= m; ++j) {
      const bool same = one[i - 1] == other[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[n][m];
}

std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& names) {
  std::vector<std::pair<int, std::string>> near;
  for (auto& each : names) {
    const bool part = name.size() >= 3 && each.find(name) != std::string::npos;
    const int distance = part ? 0 : edit_distance(name, each);
    if (distance <= static_cast<int>(std::max<std::size_t>(1, name.size() / 3)))
      near.emplace_back(distance, each);
  }
  std::stable_sort(near.begin(), near.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (auto& [distance, each] : near) result.push_back(each);
  return result;
}

std::string unknown_name(const std::string& kind, const std::string& name,
                         const std::vector<std::string>& names) {
  const auto near = nearest(name, names);
  const auto hint = near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
  return fmt::format("'{}' is no {}{} There are: {}", name, kind, hint.empty() ? "." : hint,
                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

const ops::Operator& operator_named(const std::string& name) {
  std::vector<std::string> names;
  for (auto& op : ops::operators()) {
    if (op.name == name) return op;
    names.push_back(op.name);
  }
  throw ArgumentError(unknown_name("operator", name, names));
}

}  // namespace tegula::tool

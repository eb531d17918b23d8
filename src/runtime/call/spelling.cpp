#include "runtime/call/spelling.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace tegula {

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

namespace {

bool differ_in_case_only(const std::string& one, const std::string& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
}

}  // namespace

std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& names) {
  // Every name of one letter is one replacement away from any other.
  const int most = name.size() < 2 ? 0 : std::max(1, static_cast<int>(name.size()) / 3);
  std::vector<std::pair<int, std::string>> near;
  for (auto& each : names) {
    const bool contained = name.size() >= 3 && each.find(name) != std::string::npos;
    const int edits = differ_in_case_only(name, each) ? 0 : edit_distance(name, each);
    // What contains the name is as near as two typing errors.
    if (edits <= most || contained) near.emplace_back(contained ? std::min(edits, 2) : edits, each);
  }
  std::stable_sort(near.begin(), near.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (auto& [distance, each] : near)
    if (distance == near.front().first) result.push_back(each);
  return result;
}

std::string spelling_hint(const std::string& name, const std::vector<std::string>& names) {
  const auto near = nearest(name, names);
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

}  // namespace tegula

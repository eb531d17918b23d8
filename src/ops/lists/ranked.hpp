// The choice of the largest numbers of a row, in formulas.
#pragma once
#include <algorithm>
#include <compare>
#include <cstdint>
#include <vector>

namespace tegula::ops {

// A number in the order in which a row chooses: kept ones first, then larger scores, then smaller numbers.
struct Ranked {
  bool later;
  double negated;
  std::int64_t number;

  Ranked(bool kept, double score, std::int64_t n) : later(!kept), negated(kept ? 0 : -score), number(n) {}
  auto operator<=>(const Ranked&) const = default;
};

// The first `count` of them, or all where there are fewer, in ascending order. `row` becomes ordered.
inline std::vector<std::int64_t> chosen_of(std::vector<Ranked>& row, std::size_t count) {
  std::sort(row.begin(), row.end());
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < std::min(row.size(), count); ++i) numbers.push_back(row[i].number);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace tegula::ops

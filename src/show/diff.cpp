#include "show/diff.hpp"

#include <algorithm>
#include <sstream>
#include <vector>

namespace tegula::shown {

namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Length of the longest common subsequence of one[i…] and other[j…].
using Lengths = std::vector<std::vector<int>>;

Lengths common(const Lines& one, const Lines& other) {
  Lengths length(one.size() + 1, std::vector<int>(other.size() + 1));
  for (std::size_t i = one.size(); i-- > 0;)
    for (std::size_t j = other.size(); j-- > 0;)
      length[i][j] =
          one[i] == other[j] ? length[i + 1][j + 1] + 1 : std::max(length[i + 1][j], length[i][j + 1]);
  return length;
}

// All lines of both, with a mark in front.
Lines merged(const Lines& one, const Lines& other) {
  const Lengths length = common(one, other);
  Lines result;
  std::size_t i = 0, j = 0;
  while (i < one.size() || j < other.size()) {
    if (i < one.size() && j < other.size() && one[i] == other[j])
      result.push_back(" " + one[i++]), ++j;
    else if (i < one.size() && (j == other.size() || length[i + 1][j] >= length[i][j + 1]))
      result.push_back("-" + one[i++]);
    else
      result.push_back("+" + other[j++]);
  }
  return result;
}

bool is_near_change(const Lines& lines, std::size_t at) {
  constexpr std::size_t around = 2;
  const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(at < around ? 0 : at - around);
  const auto end = lines.begin() + static_cast<std::ptrdiff_t>(std::min(at + around + 1, lines.size()));
  return std::any_of(begin, end, [](auto& line) { return line[0] != ' '; });
}

}  // namespace

std::string diff(const std::string& before, const std::string& after) {
  const Lines lines = merged(lines_of(before), lines_of(after));
  std::string text;
  bool changed = false, left_out = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    changed |= lines[i][0] != ' ';
    if (is_near_change(lines, i))
      text += lines[i] + "\n", left_out = false;
    else if (!left_out)
      text += "…\n", left_out = true;
  }
  return changed ? text : "";
}

}  // namespace tegula::shown

#include "ir/print_lines.hpp"

#include <algorithm>

#include "tegula/error.hpp"

namespace tegula::ir {
namespace {

constexpr std::size_t furthest_column = 88;

}  // namespace

std::string layout(const std::vector<Line>& lines) {
  std::size_t column = 0;
  for (const Line& line : lines) column = std::max(column, line.width() + 2);
  column = std::min(column, furthest_column);
  std::string text, last;
  for (const Line& line : lines) {
    std::string row = std::string(static_cast<std::size_t>(2 * line.depth), ' ') + line.text;
    const std::string place = line.at.line() == 0 ? last : short_location(line.at);
    if (place != last) row += std::string(std::max(row.size() + 2, column) - row.size(), ' ') + "// " + place;
    last = place;
    text += (line.text.empty() ? "" : row) + "\n";
  }
  return text;
}

}  // namespace tegula::ir

// Lines of a printed kernel, each with the place in the source that it comes from.
#pragma once
#include <string>
#include <vector>

#include "ir/kernel.hpp"

namespace tegula::ir {

struct Line {
  int depth;
  std::string text;
  Loc at;

  std::size_t width() const { return static_cast<std::size_t>(2 * depth) + text.size(); }
};

// One below the other, indented; places stand in a column, where they differ from the line's before.
std::string layout(const std::vector<Line>& lines);

}  // namespace tegula::ir

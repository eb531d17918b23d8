// A picture of the layouts of a grid's fragments: for every layout the warps that hold the regions of the
// matrix, and the thread and the register of each element of its top left corner.
#pragma once
#include <string>
#include <vector>

#include "layout/layout.hpp"

namespace tegula::shown {

// Fragments that are placed alike are drawn once.
struct DrawnLayout {
  layout::Layout layout;
  std::vector<std::string> fragments;
};

struct LayoutPage {
  std::string title;
  std::vector<std::string> products;  // a line each
  std::vector<DrawnLayout> layouts;

  void add(const std::string& fragment, const layout::Layout& layout);
};

inline constexpr int detail_rows = 16, detail_columns = 32;

std::string layout_picture(const LayoutPage& page);

}  // namespace tegula::shown

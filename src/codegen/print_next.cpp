// What a block brings into the cache for the next one.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr const char* nothing = "RowsAhead{scratch, 0, 0, 0}";

}  // namespace

// What the rows of a pass fetch, with a declaration in front of them.
std::string GridPrinter::rows_of_next() {
  const std::string name = names_.unique("next"), left = scalar(next_->left);
  const std::string last = next_->last ? scalar(next_->last) + " && " : "";
  out_.line(fmt::format("const RowsAhead {} = {}uint32_t({}) < {} ? ahead[{}] : {};", name, last, left,
                        next_->places.size(), left, nothing));
  return name;
}

bool GridPrinter::stands_for_fetch(const Copy& n) {
  if (!next_) return false;
  const auto place = std::find(next_->places.begin(), next_->places.end(), n.to.buffer);
  if (place == next_->places.end()) return false;
  const std::string rows = rows_text({{}, n.from, n.to.extent(0), n.to.extent(1), nullptr});
  out_.line(fmt::format("ahead[{}] = {};", place - next_->places.begin(), rows));
  return true;
}

// The function that says what a block reads first. It ends early where the block does.
void GridPrinter::print_beginning(Grid grid, const NextBlock& next, const std::string& function) {
  next_ = next;
  grid.body = next.beginning;
  uses_ = tile_uses(grid.body);
  out_.open(
      fmt::format("TEGULA_CPU_SHARED void {}_ahead(const TegulaCall* call, const int32_t* "
                  "block, char* scratch, RowsAhead* ahead) {{",
                  function));
  prologue(grid);
  body(grid.body);
  out_.close();
}

// Before the block declares a tile, so that its scratch memory is free.
void GridPrinter::look_ahead(const std::string& function) {
  std::string none;
  for (std::size_t i = 0; i < next_->places.size(); ++i) none += (i > 0 ? ", " : "") + std::string(nothing);
  out_.line(fmt::format("RowsAhead ahead[] = {{{}}};", none));
  out_.line(fmt::format("if (next != nullptr) {}_ahead(call, next, scratch, ahead);", function));
}

}  // namespace tegula::codegen

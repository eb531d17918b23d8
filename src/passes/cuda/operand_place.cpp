#include "passes/cuda/operand_place.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "passes/note.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int step_bytes = 32;               // of a row along k that one instruction multiplies
constexpr std::int64_t rows_together = 8;    // whose pieces of 16 bytes are exchanged
constexpr std::int64_t narrowest_part = 16;  // of columns that no instruction has at once
constexpr const char* own_tile = "give each operand its own two-dimensional tile";

Reason reason_of_blocks(const View& view) {
  const Buffer& tile = *view.buffer;
  return {fmt::format("rows of operand {}, {} x {} of {}, do not fill blocks of 32, 64 or 128 bytes",
                      named(tile), tile_rows(tile), tile_columns(tile), tile.type.name()),
          "give the tile rows of a multiple of 128 bytes, and a multiple of eight rows"};
}

Reason reason_of_matrix(const View& view) {
  return {fmt::format("rows of operand {} do not follow each other as the tile's, which have {} elements",
                      named(*view.buffer), tile_columns(*view.buffer)),
          own_tile};
}

// Walks over the dimensions of a view and finds which of them are rows, and which columns.
class AxesOfMatrix {
 public:
  explicit AxesOfMatrix(const View& view) : view_(view), columns_(tile_columns(*view.buffer)) {}

  bool run() {
    std::int64_t step = 1;
    for (std::size_t d = view_.dims.size(); d-- > 0;) {
      const std::int64_t extent = constant_value(view_.shape[d]);
      if (extent > 1 || view_.dims[d].axis >= 0) {
        const bool good = step >= columns_
                              ? add_rows(view_.dims[d], step, extent)
                              : step * extent <= columns_ && add_columns(view_.dims[d], step, extent);
        if (!good) return false;
      }
      step *= extent;
    }
    return row_axis >= 0 && column_axis >= 0;
  }

  int row_axis = -1, column_axis = -1;
  OperandPlace place;

 private:
  bool add_rows(const ViewDim& dim, std::int64_t step, std::int64_t extent) {
    if (step % columns_ != 0) return false;
    const std::int64_t rows = step / columns_;
    if (dim.axis >= 0) {
      if (rows != 1 || row_axis >= 0 || !is_constant(dim.offset)) return false;
      row_axis = dim.axis;
    }
    if (is_constant(dim.offset))
      place.row += constant_value(dim.offset) * rows;
    else
      place.steps.push_back({dim.offset, rows, 0, extent});
    return true;
  }

  bool add_columns(const ViewDim& dim, std::int64_t step, std::int64_t extent) {
    if (!is_constant(dim.offset)) {
      place.steps.push_back({dim.offset, 0, step, extent});
      return dim.axis < 0;
    }
    place.column += constant_value(dim.offset) * step;
    if (dim.axis < 0) return true;
    if (step != 1 || column_axis >= 0) return false;
    column_axis = dim.axis;
    return true;
  }

  const View& view_;
  const std::int64_t columns_;
};

}  // namespace

std::int64_t tile_columns(const Buffer& tile) { return tile.rank() == 0 ? 1 : tile.extent(tile.rank() - 1); }
std::int64_t tile_rows(const Buffer& tile) { return tile.elements() / tile_columns(tile); }

layout::TileOrder swizzled_order(const Buffer& tile) {
  const bool is_operand =
      tile.type.is_floating() || tile.type == u32 || (tile.type.is_integer() && tile.type.bits() == 8);
  if (tile.rank() < 2 || !is_operand) return {};
  return layout::swizzled_order(tile_rows(tile), tile_columns(tile), tile.type.bytes());
}

Planned<OperandPlace> place_of(const View& view, int along_k) {
  const Buffer& tile = *view.buffer;
  const layout::TileOrder order = swizzled_order(tile);
  if (!order.is_swizzled()) return reason_of_blocks(view);
  AxesOfMatrix walk(view);
  if (view.rank() != 2 || !walk.run()) return reason_of_matrix(view);
  OperandPlace place = walk.place;
  place.is_transposed = walk.row_axis == 1;
  place.rows = tile_rows(tile);
  place.order = order;
  const auto is_odd = [](const OperandPlace::Step& step) { return step.rows % rows_together != 0; };
  if (place.row % rows_together != 0 || std::any_of(place.steps.begin(), place.steps.end(), is_odd))
    return Reason{
        fmt::format("operand {} begins at a row that is not a multiple of {}", named(tile), rows_together),
        fmt::format("begin at multiples of {} rows of the tile", rows_together)};
  for (const OperandPlace::Step& step : place.steps) {
    if (step.columns % order.columns != 0)
      return Reason{fmt::format("operand {} begins at a column that is not a multiple of {}", named(tile),
                                order.columns),
                    fmt::format("begin at multiples of {} columns of the tile", order.columns)};
  }
  const std::int64_t unit = (walk.column_axis == along_k ? step_bytes : 16) / tile.type.bytes();
  if (place.column % unit != 0)
    return Reason{fmt::format("operand {} begins at column {} of the tile, which is not a multiple of {}",
                              named(tile), place.column, unit),
                  fmt::format("begin at multiples of {} columns", unit)};
  return place;
}

View transposed(View view) {
  for (ViewDim& dim : view.dims)
    if (dim.axis >= 0) dim.axis = 1 - dim.axis;
  std::swap(view.extents[0], view.extents[1]);
  return view;
}

std::vector<int> instruction_columns(const OperandPlace& b, std::int64_t own, std::int64_t groups,
                                     std::int64_t widest) {
  const std::int64_t block = b.is_transposed ? 8 : b.order.columns, count = (own + widest - 1) / widest;
  const std::int64_t even = ((own + count - 1) / count + block - 1) / block * block;
  std::vector<int> result;
  for (std::int64_t first = 0; first < own;) {
    std::int64_t width = std::min(std::min(even, widest), own - first);
    for (std::int64_t group = 0; group < groups; ++group) {
      const std::int64_t inside = (b.column + group * own + first) % block;
      if (!b.is_transposed && inside != 0) width = std::min(width, block - inside);
    }
    if (width % 8 != 0 || (width < std::min(own, narrowest_part))) return {};
    result.push_back(static_cast<int>(width));
    first += width;
  }
  return result;
}

}  // namespace tegula::passes

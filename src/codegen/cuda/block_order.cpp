#include "codegen/cuda/block_order.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "ir/affine.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Blocks beside the heavy ones that begin together, so that what they share stays in the L2 cache. More where
// blocks wait for each other: each waits for fewer that begin with it (measured, causal gradients of 2048
// keys: with 8 they lose 7 %, with 32 3 %).
constexpr int section = 8, section_in_order = 16;

// The index along which the cost changes most plainly, and whether it grows; -1 if none is known.
struct HeavyIndex {
  int index = -1;
  bool grows = false;
};

HeavyIndex heavy_index(const Grid& grid) {
  if (grid.hints.order != GridOrder::heavy_first || !has_affine_form(grid.hints.cost->held())) return {};
  for (const Affine::Term& term : affine(grid.hints.cost).terms) {
    for (std::size_t i = 0; i < grid.index.size(); ++i) {
      if (term.atom->op == Op::variable && term.atom->variable == grid.index[i])
        return {static_cast<int>(i), term.factor > 0};
    }
  }
  return {};
}

bool has_groups(const Grid& grid) { return grid.hints.order == GridOrder::grouped && grid.index.size() > 1; }

// The indices, those that change fastest first.
std::vector<std::size_t> digits_of(const Grid& grid) {
  std::vector<std::size_t> order(grid.index.size());
  std::iota(order.begin(), order.end(), 0);
  if (grid.hints.order == GridOrder::column && order.size() > 1) std::swap(order[0], order[1]);
  return order;
}

}  // namespace

bool has_digits(const Grid& grid) { return !has_groups(grid) && heavy_index(grid).index < 0; }

void BlockOrder::define_index(const Grid& grid, std::size_t i, const std::string& text) {
  out_.line(fmt::format("const int {} = {};", values_.name_variable(grid.index[i]), text));
  values_.facts.add_index(grid.index[i], constant(grid.extents[i]->held(), 0), grid.extents[i]);
}

// The first of `order` changes fastest.
void BlockOrder::decode_digits(const Grid& grid, const std::vector<std::size_t>& order, std::string rest) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i + 1 == order.size()) {
      define_index(grid, order[i], rest);
      break;
    }
    const std::string extent = fmt::format("uint32_t({})", bare(values_.value(grid.extents[order[i]])));
    define_index(grid, order[i], fmt::format("{} % {}", rest, extent));
    const std::string next = names_.unique("rest");
    out_.line(fmt::format("const uint32_t {} = {} / {};", next, rest, extent));
    rest = next;
  }
}

// Rows of blocks in groups, down the columns of a group.
void BlockOrder::decode_grouped(const Grid& grid, const std::string& number) {
  const std::string width = fmt::format("uint32_t({})", bare(values_.value(grid.extents[0]))),
                    height = fmt::format("uint32_t({})", bare(values_.value(grid.extents[1])));
  std::string plane = number;
  if (grid.index.size() > 2) {
    plane = names_.unique("plane");
    out_.line(fmt::format("const uint32_t {} = {} % ({} * {});", plane, number, width, height));
    define_index(grid, 2, fmt::format("{} / ({} * {})", number, width, height));
  }
  const std::string first = names_.unique("first_row"), rows = names_.unique("rows"),
                    rest = names_.unique("rest");
  out_.line(fmt::format("const uint32_t {} = {} / ({} * {}) * {};", first, plane, grid.hints.group, width,
                        grid.hints.group));
  out_.line(fmt::format("const uint32_t {} = tg::min<uint32_t>({}, {} - {});", rows, grid.hints.group, height,
                        first));
  out_.line(fmt::format("const uint32_t {} = {} - {} * {};", rest, plane, first, width));
  define_index(grid, 0, fmt::format("{} / {}", rest, rows));
  define_index(grid, 1, fmt::format("{} + {} % {}", first, rest, rows));
}

// The heaviest blocks of a section first.
void BlockOrder::decode_heavy(const Grid& grid, std::size_t heavy, bool grows, const std::string& number) {
  std::vector<std::size_t> others;
  std::string count = "1u";
  for (std::size_t i = 0; i < grid.index.size(); ++i) {
    if (i == heavy) continue;
    others.push_back(i);
    count += fmt::format(" * uint32_t({})", bare(values_.value(grid.extents[i])));
  }
  const std::string extent = fmt::format("uint32_t({})", bare(values_.value(grid.extents[heavy])));
  const std::string first = names_.unique("first"), width = names_.unique("width"),
                    place = names_.unique("place");
  std::string most = std::to_string(in_order_ ? section_in_order : section);
  if (grid.hints.together) {
    most = names_.unique("together");
    out_.line(fmt::format("const uint32_t {} = tg::min<uint32_t>(tg::max<int>({}, 1), {});", most,
                          values_.value(grid.hints.together), count));
  }
  out_.line(fmt::format("const uint32_t {} = {} / ({} * {}) * {};", first, number, most, extent, most));
  out_.line(fmt::format("const uint32_t {} = tg::min<uint32_t>({}, {} - {});", width, most, count, first));
  out_.line(fmt::format("const uint32_t {} = {} - {} * {};", place, number, first, extent));
  define_index(
      grid, heavy,
      grows ? fmt::format("{} - 1 - {} / {}", extent, place, width) : fmt::format("{} / {}", place, width));
  if (others.empty()) return;
  const std::string rest = names_.unique("rest");
  out_.line(fmt::format("const uint32_t {} = {} + {} % {};", rest, first, place, width));
  decode_digits(grid, others, rest);
}

std::string BlockOrder::is_behind_last(const Grid& grid) const {
  const std::size_t last = digits_of(grid).back();
  return fmt::format("{} >= {}", values_.variable_text(grid.index[last]), values_.value(grid.extents[last]));
}

void BlockOrder::decode(const Grid& grid, const std::string& number) {
  if (has_groups(grid)) return decode_grouped(grid, number);
  if (const HeavyIndex heavy = heavy_index(grid); heavy.index >= 0)
    return decode_heavy(grid, static_cast<std::size_t>(heavy.index), heavy.grows, number);
  decode_digits(grid, digits_of(grid), number);
}

}  // namespace tegula::codegen

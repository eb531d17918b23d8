#include "passes/cuda/plan_copies.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/affine.hpp"
#include "ir/zero.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/note.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int box_alignment = 16;  // bytes: a box that begins elsewhere in its innermost dimension is illegal

}  // namespace

int aligned_elements(const View& tensor) { return std::max(1, box_alignment / tensor.buffer->type.bytes()); }

bool begins_aligned(const View& tensor) {
  const std::int64_t unit = aligned_elements(tensor);
  const Affine first = affine(tensor.dims.back().offset);
  return first.constant % unit == 0 &&
         std::all_of(first.terms.begin(), first.terms.end(),
                     [&](const Affine::Term& term) { return term.factor % unit == 0; });
}

std::optional<TileRows> rows_of(const View& view) {
  const Buffer& tile = *view.buffer;
  if (tile.space != Space::shared || tile.rank() < 1 || view.rank() < 1 ||
      view.shape.size() != view.dims.size())
    return std::nullopt;
  if (static_cast<int>(view.dims.size()) != view.rank()) return std::nullopt;
  for (int d = 0; d < view.rank(); ++d) {
    const ViewDim& dim = view.dims[static_cast<std::size_t>(d)];
    if (dim.axis != d || !is_constant(dim.offset)) return std::nullopt;
    const bool all = is_constant(dim.offset, 0) &&
                     constant_value(view.shape[static_cast<std::size_t>(d)]) == view.extent(d);
    if (!all && d > 0) return std::nullopt;
  }
  const std::int64_t columns = tile.extent(tile.rank() - 1), first = constant_value(view.dims[0].offset);
  if (view.rank() == 1 && (first != 0 || view.extent(0) != tile.elements())) return std::nullopt;
  if (view.rank() > 1 && view.extent(view.rank() - 1) != columns) return std::nullopt;
  std::int64_t inner = 1, rows = view.rank() > 1 ? view.extent(0) : 1;
  for (int d = 1; d + 1 < view.rank(); ++d) inner *= view.extent(d);
  if (first < 0 || (first + rows) * inner * columns > tile.elements()) return std::nullopt;
  return TileRows{first * inner, rows * inner};
}

namespace {

// What a box can never be.
Reason reason_of_kind(const Copy& copy) {
  const View &from = copy.from, &to = copy.to;
  if (from.is_tile()) return {};
  if (!rows_of(to))
    return {fmt::format("tile {} is not filled by whole rows", named(*to.buffer)),
            "fill all columns of the tile, in its own order"};
  if (!is_own_shape(from))
    return {fmt::format("tensor `{}` is reshaped", from.buffer->name), "declare the tensor with that shape"};
  if (!is_zero(copy.fill))
    return {"elements outside the tensor are filled with a value other than 0",
            "fill with 0 and mask the results"};
  if (from.buffer->type != to.buffer->type)
    return {fmt::format("{} of the tensor become {} of tile {}", from.buffer->type.name(),
                        to.buffer->type.name(), named(*to.buffer)),
            "give the tile the tensor's type, or the tensor the tile's"};
  if (from.buffer->rank() > most_dims)
    return {fmt::format("tensor `{}` has {} dimensions", from.buffer->name, from.buffer->rank()),
            fmt::format("join dimensions: the copy engine knows {}", most_dims)};
  return {};
}

Reason reason_of_order(const View& tensor) {
  return {fmt::format(
              "the tile's axes do not follow each other in tensor `{}`, with its last dimension at the end",
              tensor.buffer->name),
          "copy it untransposed and transpose it where it is used: gemm(a.T(), …)"};
}

Reason reason_of_beginning(const View& from) {
  if (begins_aligned(from)) return {};
  return {fmt::format("a box that does not begin at a multiple of {} bytes along the last dimension of `{}` "
                      "is copied by threads",
                      box_alignment, from.buffer->name),
          fmt::format("begin at multiples of {} elements, and say so: `index * {}`", aligned_elements(from),
                      aligned_elements(from))};
}

// Whether a limit may be inside of the tile, and of the tensor.
bool limit_may_cut(const ViewDim& dim, const Expr& extent, std::int64_t elements) {
  const Affine first = affine(dim.offset);
  const auto room = [&](const Affine& from, const Affine& to) {
    const auto rest = difference(to, from);
    return rest && rest->is_constant() ? rest->constant : -1;
  };
  const bool begins = !dim.low || is_constant(dim.low, 0) || room(affine(dim.low), first) >= 0;
  return !begins || (dim.high && !equal(dim.high, extent) && room(first, affine(dim.high)) < elements);
}

// The dimension of the tensor in which a limit may cut the tile; −1: none does.
int cut_dimension(const View& from, const View& tile) {
  for (std::size_t d = 0; d < from.dims.size(); ++d) {
    const ViewDim& dim = from.dims[d];
    if (dim.axis >= 0 && limit_may_cut(dim, from.shape[d], tile.extent(dim.axis))) return static_cast<int>(d);
  }
  return -1;
}

// Whether some limit of the window may cut the tile, or its boxes begin where none can.
Reason reason_of_clipping(const View& from, const View& tile) {
  const int cut = cut_dimension(from, tile);
  if (cut < 0) return reason_of_beginning(from);
  return {fmt::format("if a limit of the window cuts dimension {} of `{}`, threads copy the tile", cut,
                      from.buffer->name),
          "let rows past the limit be loaded as well and mask their results"};
}

// What the copy takes of each dimension of the tensor; nothing unless the axes of the tile follow each other
// there, to the end.
std::optional<std::vector<int>> extents_in_tensor(const View& from, const View& tile) {
  std::vector<int> extents;
  int axis = 0;
  for (const ViewDim& dim : from.dims) {
    std::int64_t extent = 1;
    if (dim.axis >= 0) {
      if (dim.axis != axis++) return std::nullopt;
      extent = tile.extent(dim.axis);
    }
    extents.push_back(static_cast<int>(extent));
  }
  if (axis != tile.rank() || from.dims.back().axis != tile.rank() - 1) return std::nullopt;
  return extents;
}

// Whether a tile may be partly outside the tensor, its rows begin at a multiple of their number, so that
// those of the last tile are what whole tiles leave, and nothing depends on rows outside.
bool may_end_inside(const Copy& copy) {
  if (!copy.any_outside) return false;
  const std::int64_t rows = copy.to.extent(0);
  const std::size_t dim = copy.from.dims.size() - 2;
  const Expr& extent = copy.from.shape[dim];
  const Affine first = affine(copy.from.dims[dim].offset);
  const bool is_divided = is_constant(extent) && constant_value(extent) % rows == 0;
  return !is_divided && first.constant % rows == 0 &&
         std::all_of(first.terms.begin(), first.terms.end(),
                     [&](const Affine::Term& term) { return term.factor % rows == 0; });
}

}  // namespace

bool limits_may_cut(const Copy& copy) {
  return !copy.from.is_tile() && copy.to.is_tile() && cut_dimension(copy.from, copy.to) >= 0;
}

Planned<TensorCopy> plan_copy(const Copy& copy, bool swizzled) {
  const View &from = copy.from, &to = copy.to;
  const auto rows = rows_of(to);
  if (from.is_tile() || !rows || !is_own_shape(from) || !is_zero(copy.fill)) return reason_of_kind(copy);
  if (from.buffer->type != to.buffer->type || from.buffer->rank() > most_dims) return reason_of_kind(copy);
  const Buffer& tile = *to.buffer;
  const int last = tile.rank() - 1, bytes = tile.type.bytes();
  TensorCopy plan;
  plan.columns = static_cast<int>(tile.extent(last));
  if (swizzled) {
    const auto order = swizzled_order(tile);
    if (order.is_swizzled()) plan.columns = order.columns, plan.is_swizzled = true;
  }
  // A transfer begins at 128 bytes. The pattern of a swizzle follows the address, so it may begin at any row.
  plan.first_row = static_cast<int>(rows->first);
  if (rows->first * plan.columns * bytes % 128 != 0)
    return Reason{fmt::format("row {} of tile {} does not begin at 128 bytes", rows->first, named(tile)),
                  "fill as many rows at a time as begin at multiples of 128 bytes"};
  auto extents = extents_in_tensor(from, to);
  if (!extents) return reason_of_order(from);
  plan.box = std::move(*extents);
  plan.needs_zeros = !copy.any_beyond_limits;
  plan.clipped = plan.needs_zeros ? reason_of_clipping(from, to) : reason_of_beginning(from);
  plan.is_clipped = !plan.clipped.why.empty();
  plan.box.pop_back();
  for (const int extent : plan.box) {
    if (extent > most_in_box)
      return Reason{
          fmt::format("{} rows of tile {} exceed the {} of a box", extent, named(tile), most_in_box),
          "fill it by several copies"};
  }
  if (plan.columns > most_in_box || plan.columns * bytes % box_alignment != 0)
    return Reason{
        fmt::format("rows of tile {} have {} elements of {} bytes: a box has {} at most, and a multiple "
                    "of {} bytes",
                    named(tile), plan.columns, bytes, most_in_box, box_alignment),
        "choose the tile's columns accordingly"};
  plan.ends_inside = may_end_inside(copy);
  return plan;
}

}  // namespace tegula::passes

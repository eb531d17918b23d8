#include "passes/cuda/fragment_axes.hpp"

#include <algorithm>
#include <numeric>

#include "ir/visit.hpp"
#include "passes/cuda/element_bits.hpp"

namespace tegula::passes {

using namespace ir;
using layout::Layout;

const Access* fragment_access(const Stmt& stmt) {
  const Access* access = nullptr;
  if (const auto* load = as<Load>(stmt)) access = &load->from;
  if (const auto* store = as<Store>(stmt)) access = &store->to;
  return access && access->view.buffer->space == Space::fragment ? access : nullptr;
}

namespace {

// The loop's index that goes over all of a dimension; where that has one element, any that takes one step.
std::optional<int> axis_of(const For& loop, const Expr& at, std::int64_t extent,
                           const std::vector<int>& taken) {
  for (std::size_t axis = 0; axis < loop.index.size(); ++axis) {
    const bool own = at->op == Op::variable && at->variable == loop.index[axis];
    const bool one = extent == 1 && is_constant(at, 0);
    const bool free = std::find(taken.begin(), taken.end(), static_cast<int>(axis)) == taken.end();
    if ((own || one) && free && is_constant(loop.end[axis], extent)) return static_cast<int>(axis);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<int>> loop_axes(const For& loop, const Access& access) {
  const Buffer& buffer = *access.view.buffer;
  if (access.view.shape.size() != buffer.shape.size()) return std::nullopt;
  const std::vector<Expr> at = coordinates(access);
  std::vector<int> axes;
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (!equal(access.view.shape[d], buffer.shape[d])) return std::nullopt;
    const auto axis = axis_of(loop, at[d], buffer.extent(static_cast<int>(d)), axes);
    if (!axis) return std::nullopt;
    axes.push_back(*axis);
  }
  return axes;
}

std::optional<Layout> layout_around(const For& loop, const Access& access, const Layout& fragment) {
  const auto bits = element_bits(loop, access);
  const auto held = bits ? bits_of(fragment) : std::nullopt;
  return held ? loop_layout(loop, *bits, *held) : std::nullopt;
}

Layout projected(const Layout& loop, const std::vector<int>& axes) {
  Layout result = loop;
  std::vector<int> kept(static_cast<std::size_t>(loop.rank()));
  std::iota(kept.begin(), kept.end(), 0);
  for (int d = loop.rank() - 1; d >= 0; --d) {
    if (std::find(axes.begin(), axes.end(), d) != axes.end()) continue;
    result = result.slice(d);
    kept.erase(kept.begin() + d);
  }
  std::vector<int> order;
  for (const int axis : axes)
    order.push_back(static_cast<int>(std::find(kept.begin(), kept.end(), axis) - kept.begin()));
  return result.permute(order);
}

}  // namespace tegula::passes

#include "runtime/execution/block_order.hpp"

#include <algorithm>
#include <numeric>

namespace tegula {
namespace {

bool same(const std::vector<ir::Value>& a, const std::vector<ir::Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ir::Value& x, const ir::Value& y) {
    return x.integer == y.integer && x.real == y.real;
  });
}

double number(const ir::Value& value) {
  return value.type.is_floating() ? value.real : static_cast<double>(value.integer);
}

}  // namespace

BlockOrder::BlockOrder(const ir::Grid& grid, const Signature& signature) {
  for (const ir::Expr& extent : grid.extents) extents_.emplace_back(extent, signature);
  if (grid.hints.order == ir::GridOrder::column) strip_ = INT64_MAX;
  if (grid.hints.order == ir::GridOrder::grouped) strip_ = grid.hints.group;
  if (grid.hints.order == ir::GridOrder::heavy_first)
    cost_ = std::make_unique<HostExpr>(grid.hints.cost, signature, grid.index);
}

std::array<std::int64_t, 3> BlockOrder::extents(const Binding& binding) const {
  std::array<std::int64_t, 3> n{1, 1, 1};
  for (std::size_t d = 0; d < extents_.size(); ++d)
    n[d] = std::max<std::int64_t>(0, extents_[d](binding.values).integer);
  return n;
}

BlockIndex BlockOrder::index(std::int64_t block, const std::array<std::int64_t, 3>& n) const {
  const auto at = [](std::int64_t x, std::int64_t y, std::int64_t z) {
    return BlockIndex{static_cast<std::int32_t>(x), static_cast<std::int32_t>(y),
                      static_cast<std::int32_t>(z)};
  };
  const std::int64_t plane = block % (n[0] * n[1]), z = block / (n[0] * n[1]);
  if (strip_ <= 0) return at(plane % n[0], plane / n[0], z);
  const std::int64_t height = std::min(strip_, n[1]), first = plane / (height * n[0]) * height;
  const std::int64_t rows = std::min(height, n[1] - first), remaining = plane - first * n[0];
  return at(remaining / rows, first + remaining % rows, z);
}

std::shared_ptr<const std::vector<std::int64_t>> BlockOrder::order(const Binding& binding) const {
  if (!cost_) return nullptr;
  {
    std::lock_guard lock(kept_->mutex);
    if (kept_->order && same(kept_->values, binding.values)) return kept_->order;
  }
  const auto n = extents(binding);
  std::vector<double> cost(static_cast<std::size_t>(n[0] * n[1] * n[2]));
  std::vector<ir::Value> values = binding.values;
  values.resize(values.size() + extents_.size(), ir::Value{i32, 0, 0});
  for (std::size_t block = 0; block < cost.size(); ++block) {
    const BlockIndex at = index(static_cast<std::int64_t>(block), n);
    for (std::size_t d = 0; d < extents_.size(); ++d) values[binding.values.size() + d].integer = at[d];
    cost[block] = number((*cost_)(values));
  }
  auto order = std::make_shared<std::vector<std::int64_t>>(cost.size());
  std::iota(order->begin(), order->end(), std::int64_t{0});
  std::stable_sort(order->begin(), order->end(), [&](std::int64_t a, std::int64_t b) {
    return cost[static_cast<std::size_t>(a)] > cost[static_cast<std::size_t>(b)];
  });
  std::lock_guard lock(kept_->mutex);
  kept_->values = binding.values;
  kept_->order = order;
  return order;
}

}  // namespace tegula

// The order in which the blocks of a grid begin.
#pragma once
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/binding.hpp"

namespace tegula {

using BlockIndex = std::array<std::int32_t, 3>;

// Blocks are numbered with the first index of the grid running fastest.
class BlockOrder {
 public:
  BlockOrder(const ir::Grid& grid, const Signature& signature);

  std::array<std::int64_t, 3> extents(const Binding& binding) const;
  static BlockIndex index(std::int64_t block, const std::array<std::int64_t, 3>& extents);
  // Costly blocks first where the grid says what a block costs, so that the last ones to end are short; null
  // for the order of numbers. The order of the call before is kept: most calls repeat its sizes.
  std::shared_ptr<const std::vector<std::int64_t>> order(const Binding& binding) const;

 private:
  std::vector<HostExpr> extents_;
  std::unique_ptr<HostExpr> cost_;
  struct Kept {
    std::mutex mutex;
    std::vector<ir::Value> values;
    std::shared_ptr<const std::vector<std::int64_t>> order;
  };
  std::unique_ptr<Kept> kept_ = std::make_unique<Kept>();
};

}  // namespace tegula

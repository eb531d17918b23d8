// The order in which the blocks of a grid start.
#pragma once
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/call/binding.hpp"

namespace tegula {

using BlockIndex = std::array<std::int32_t, 3>;

// Blocks are numbered as the order of the grid asks; without one the first index runs fastest.
class BlockOrder {
 public:
  BlockOrder(const ir::Grid& grid, const Signature& signature);

  std::array<std::int64_t, 3> extents(const Binding& binding) const;
  BlockIndex index(std::int64_t block, const std::array<std::int64_t, 3>& extents) const;
  // Costly blocks first where the grid says what a block costs, so that the last ones to end are short; null
  // for the order of numbers. The order of the call before is kept: most calls repeat its sizes.
  std::shared_ptr<const std::vector<std::int64_t>> order(const Binding& binding) const;

 private:
  std::vector<HostExpr> extents_;
  // Strips of so many values of the second index are finished one by one, that index fastest in each; 0: the
  // first index runs fastest.
  std::int64_t strip_ = 0;
  std::unique_ptr<HostExpr> cost_;
  struct Kept {
    std::mutex mutex;
    std::vector<ir::Value> values;
    std::shared_ptr<const std::vector<std::int64_t>> order;
  };
  std::unique_ptr<Kept> kept_ = std::make_unique<Kept>();
};

}  // namespace tegula

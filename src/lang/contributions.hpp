// What the statements of a grid that add to one tensor have in common.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ir/ir.hpp"

namespace tegula::lang {

class Contributions {
 public:
  // Fails if some contributions of the grid to a tensor have an order and others do not.
  void check(const ir::Buffer& tensor, std::size_t grid, bool ordered, const Loc& at);
  // The words that count turns of the grid's contributions to windows of a tensor, which have these extents
  // in the shape that the tensor is seen with; null before the first.
  ir::BufferPtr& turn_words(const ir::View& window, const std::vector<std::int64_t>& extents, const Loc& at);

 private:
  struct OfTensor {
    std::size_t grid;
    bool ordered;
    ir::BufferPtr words = {};
    std::vector<std::int64_t> of_tile = {};  // extents of the windows that have a word
    std::vector<ir::Expr> shape = {};        // that those are windows of
  };
  std::unordered_map<const ir::Buffer*, OfTensor> tensors_;  // in the last grid that adds to them
};

}  // namespace tegula::lang

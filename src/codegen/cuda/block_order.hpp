// Maps blocks to grid indices: the order in which blocks start.
#pragma once
#include <string>
#include <vector>

#include "codegen/cuda/expressions.hpp"
#include "ir/kernel.hpp"

namespace tegula::codegen {

// Whether a block's indices are the digits of its number.
bool has_digits(const ir::Grid& grid);

class BlockOrder {
 public:
  BlockOrder(Expressions& values, Names& names, StepWriter& out)
      : values_(values), names_(names), out_(out) {}

  // Blocks wait for each other's turns.
  void set_in_order() { in_order_ = true; }
  // Defines the indices of a block by its number.
  void decode(const ir::Grid& grid, const std::string& number);
  void define_index(const ir::Grid& grid, std::size_t i, const std::string& text);
  // The condition on a block's number that its last index is past the grid's extent.
  std::string is_behind_last(const ir::Grid& grid) const;

 private:
  void decode_digits(const ir::Grid& grid, const std::vector<std::size_t>& order, std::string rest);
  void decode_grouped(const ir::Grid& grid, const std::string& number);
  void decode_heavy(const ir::Grid& grid, std::size_t heavy, bool grows, const std::string& number);

  Expressions& values_;
  Names& names_;
  StepWriter& out_;
  bool in_order_ = false;
};

}  // namespace tegula::codegen

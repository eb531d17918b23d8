// Bounds of integer values, from constants and the ranges of loops: what proves that an access is inside.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "ir/expr.hpp"

namespace tegula::codegen {

// Both ends belong to it.
struct Range {
  std::int64_t low, high;
};

// What is known about the variables in scope. A variable that is not here can be anything.
struct Facts {
  std::unordered_map<const ir::Variable*, Range> ranges;     // of indices
  std::unordered_map<const ir::Variable*, ir::Expr> values;  // of lets

  Range of(const ir::Expr& e) const;

 private:
  Range at_depth(const ir::Expr& e, int depth) const;
};

}  // namespace tegula::codegen

// Losses of rows that no block holds, each of which several blocks read.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// Blocks of a first grid have `columns` of a row, those of a second one add up what these have found.
struct LossInParts {
  DType type = f32;
  int classes = 1, columns = 1;
  bool smooths = false;
  auto fields() const {
    return std::tuple(type, joined("c", classes, columns), labelled("smoothed", smooths));
  }
};
lang::Kernel loss_in_parts(const LossInParts& c);

}  // namespace tegula::ops

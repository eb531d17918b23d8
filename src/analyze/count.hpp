// Counts the work of a grid by walking its program.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "ir/arithmetic.hpp"
#include "ir/kernel.hpp"

namespace tegula::analyzed {

struct Work {
  std::map<std::string, double> flops;  // by operand type; "other" and "special"
  double copied_bytes = 0;
  bool is_estimated = false;  // loops or conditions depend on elements of tensors

  void add(const Work& other, double times);
};

using Values = std::map<const ir::Variable*, ir::Value>;

double blocks_of(const ir::Grid& grid, const Values& values);
// The work of all blocks; if there are many, it is counted for some of them, evenly spaced.
Work work_of(const ir::Grid& grid, const Values& values);

}  // namespace tegula::analyzed

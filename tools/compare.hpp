// Results of an operator beside its formula.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ops/registry.hpp"

namespace tegula::tool {

// The element of an output that is farthest from right, measured by what the tolerance allows there.
struct OutputVerdict {
  std::string output;
  double error = 0, bound = 0;
  std::string wrong;  // why, if it is
  bool right() const { return wrong.empty(); }
};

// One verdict for each output of the formula, and one for each output that has no formula.
std::vector<OutputVerdict> compare_outputs(const ops::Tensors& results, const ops::Tensors& expected,
                                           const ops::Operator::Tolerance& tolerance);

struct CaseVerdict {
  std::vector<OutputVerdict> outputs;
  std::string failure;  // what was thrown, if anything
  bool right() const;
};

CaseVerdict check_case(const ops::Operator& op, const ops::Case& example, Target target, std::uint64_t seed);

}  // namespace tegula::tool

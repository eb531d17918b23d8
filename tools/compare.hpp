// Compares results of an operator with its formula.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ops/registry.hpp"

namespace tegula::tool {

struct CaseVerdict {
  std::vector<ops::Verdict> outputs;
  std::string failure;  // what was thrown, if anything
  bool right() const;
};

CaseVerdict check_case(const ops::Operator& op, const ops::Case& example, Target target, std::uint64_t seed);

}  // namespace tegula::tool

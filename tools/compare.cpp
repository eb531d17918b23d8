#include "compare.hpp"

#include <algorithm>

namespace tegula::tool {

bool CaseVerdict::right() const {
  return failure.empty() && !outputs.empty() &&
         std::all_of(outputs.begin(), outputs.end(), [](auto& o) { return o.right(); });
}

CaseVerdict check_case(const ops::Operator& op, const ops::Case& example, Target target, std::uint64_t seed) {
  CaseVerdict verdict;
  try {
    auto inputs = example.inputs(seed);
    auto options = ops::Options::parse(op, example.options);
    verdict.outputs = op.judge(inputs, options, ops::run_from_host(op, inputs, options, target));
  } catch (const std::exception& error) { verdict.failure = error.what(); }
  return verdict;
}

}  // namespace tegula::tool

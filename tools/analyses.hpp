// The work of recorded kernel calls, and the minimum time that a machine needs.
#pragma once
#include <vector>

#include "runtime/execution/recorded.hpp"
#include "tegula/analyze.hpp"

namespace tegula::tool {

// One analysis per call, in order.
inline std::vector<Analysis> analyses_of(const RecordedCalls& recorded, const Machine& machine) {
  std::vector<Analysis> all;
  for (const RecordedCall& call : recorded.calls())
    all.push_back(analyze(lang::Kernel(call.signature->kernel_pointer()), call.values, machine));
  return all;
}

}  // namespace tegula::tool

// Row sums that a loop forms step by step, such as the denominator of softmax. The lanes and warps that share
// a row may each keep a partial sum, and combine them once after the loop.
#pragma once
#include <vector>

#include "ir/ir.hpp"
#include "passes/cuda/infer_layouts.hpp"
#include "schedule/schedule.hpp"

namespace tegula::passes {

// The lanes of a warp among which the elements of a sum are divided, and what remains for warps to exchange.
struct Parting {
  struct Unit {
    std::int64_t step, count;  // thread / step % count
  };
  std::vector<Unit> lanes;
  layout::Digits parts;
  std::vector<Unit> numbers;  // of a thread among the parts
};
Parting parting(const layout::Layout& layout, int dim);

// A fragment whose lanes, and warps, keep their parts while a loop runs.
struct LaneSum {
  ir::BufferPtr sum;
  Parting parting;
};
// Keyed by the statement of the loop.
using LaneSums = std::unordered_map<const ir::StmtNode*, std::vector<LaneSum>>;

// Sums that are formed beside the exponentials of a loop, whose lanes can keep their parts until it is over.
// So they do in branches for rows, where no product hides the shuffles of whole sums, and where warps that
// divide the columns would meet in every step.
LaneSums find_lane_sums(const schedule::Events& events, const Layouts& layouts);

// The fragments of f32 that the body, or a branch for rows in it, only adds row sums to and multiplies by
// what does not depend on them.
std::vector<ir::BufferPtr> lane_sums(const ir::Body& body);

}  // namespace tegula::passes

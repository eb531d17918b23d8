// The tiles of the gradients of attention.
#pragma once
#include "ops/attention/plan.hpp"

namespace tegula::ops {

// Relative time of a call on the CPU; infinite where a block does not fit its cache.
double estimate_backward(const AttentionProblem& problem, const AttentionPlan& plan);
// The extents that `given` leaves open are chosen.
AttentionPlan plan_attention_backward(const AttentionProblem& problem, const AttentionTiles& given);
struct BackwardPlan {
  AttentionPlan tiles;
  // See AttentionBackwardKernel.
  bool one_pass = false, ordered = false, late = false, alone = false;
  int step = 0, splits = 1, row_splits = 1;
  bool rows_first = false;
  int shares = 0;
};
// Whether a tile of queries sees all blocks of keys, all up to some block, or those of a window. Of packed
// sequences each has blocks of its own, which do not take turns.
enum class BackwardMask : std::uint8_t { none, causal, window, packed };
struct BackwardTraits {
  BackwardMask mask = BackwardMask::none;
  bool softcap = false, deterministic = true;
  bool hopper = true;  // its instructions and its shared memory
  int features = 128;  // the most of a tensor: tiles may have more
};
BackwardPlan plan_attention_backward_on_cpu(const AttentionProblem& problem, const AttentionTiles& given,
                                            const BackwardTraits& traits);
// Whether tiles of fewer features are better filled up with zeros: one pass sums all gradients of 128.
inline constexpr int features_of_one_pass = 128;
bool pads_to_one_pass(const AttentionProblem& problem, DType type, const AttentionTiles& given,
                      const BackwardTraits& traits);
BackwardPlan plan_attention_backward_on_gpu(const AttentionProblem& problem, DType type,
                                            const AttentionTiles& given, const BackwardTraits& traits);

}  // namespace tegula::ops

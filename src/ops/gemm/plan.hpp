// The tile of a product: candidates, an estimate of their time, the best.
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/ops/gemm.hpp"

namespace tegula::ops {

struct GemmProblem {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  // Of a GPU; on the CPU plans do not depend on them.
  int processors = 1;
  int stored_bytes = 2;  // of an element that a block stores
};

// Relative time of a call on the CPU with these tiles; infinite where a block does not fit its cache.
double estimate(const GemmProblem& problem, const GemmTiles& tiles);
// The extents that `given` leaves open are chosen.
GemmTiles plan_gemm(const GemmProblem& problem, const GemmTiles& given);

// On a GPU also how deep loads run ahead: a block that has a processor alone takes all of its shared memory.
struct GpuGemmPlan {
  GemmTiles tiles;
  std::optional<int> stages = {};  // none: the compiler's choice
};
// `type` is that of the tiles.
GpuGemmPlan plan_gemm_on_gpu(const GemmProblem& problem, DType type, const GemmTiles& given);

}  // namespace tegula::ops

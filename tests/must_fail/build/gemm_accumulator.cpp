#include "tests/must_fail/must_fail.hpp"

// Products of small floats are summed in f32, those of f16 in f16 where that is asked for.
TEGULA_MUST_FAIL(gemm_accumulator,
                 "the accumulator must be f32, got f16; only dense products of f16 are summed in f16") {
  Shared a({64, 64}, bf16);
  Fragment c({64, 64}, f16, 0);
  gemm(a, a.T(), c);  // error
}

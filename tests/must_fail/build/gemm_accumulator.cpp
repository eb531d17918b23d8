#include "tests/must_fail/must_fail.hpp"

// Products of small floats are summed in f32.
TEGULA_MUST_FAIL(gemm_accumulator, "the accumulator must be f32, got f16") {
  Shared a({64, 64}, f16);
  Fragment c({64, 64}, f16, 0);
  gemm(a, a.T(), c);  // error
}

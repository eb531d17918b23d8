#include "tests/must_fail/must_fail.hpp"

// A precision is that of operands of f32: others are exact.
TEGULA_MUST_FAIL(gemm_precision,
                 "gemm of bf16: .precision is for f32 operands; leave it out, or make the tiles f32") {
  Shared a({64, 64}, bf16);
  Fragment c({64, 64}, f32, 0);
  gemm(a, a.T(), c, {.precision = Precision::tf32});  // error
}

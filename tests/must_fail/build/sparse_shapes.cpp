#include "tests/must_fail/must_fail.hpp"

// A sparse operand holds half of the values along k.
TEGULA_MUST_FAIL(sparse_shapes, "values [m, k / 2]") {
  Shared a({64, 128}, f16), places({64, 16}, u8), b({32, 128}, f16);
  Fragment c({64, 32}, f32, 0);
  gemm_sparse(a, places, b.T(), c);  // error
}

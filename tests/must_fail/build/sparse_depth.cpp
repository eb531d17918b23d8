#include "tests/must_fail/must_fail.hpp"

// Metadata tell of whole eights of values along k.
TEGULA_MUST_FAIL(sparse_depth, "are not a multiple of 8") {
  Shared a({64, 6}, f16), places({64, 1}, u8), b({32, 12}, f16);
  Fragment c({64, 32}, f32, 0);
  gemm_sparse(a, places, b.T(), c);  // error
}

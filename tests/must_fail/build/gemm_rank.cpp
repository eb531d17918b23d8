#include "tests/must_fail/must_fail.hpp"

// Operands of a product are matrices.
TEGULA_MUST_FAIL(gemm_rank, "operands have rank 2") {
  Shared a({64}, f16);
  Fragment c({64, 64}, f32, 0);
  gemm(a, a, c);  // error
}

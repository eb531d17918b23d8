#include "tests/must_fail/must_fail.hpp"

// The inner extents of a product agree.
TEGULA_MUST_FAIL(gemm_shapes, "does not fit") {
  Shared a({64, 64}, f16), b({32, 64}, f16);
  Fragment c({64, 64}, f32, 0);
  gemm(a, b, c);  // error
}

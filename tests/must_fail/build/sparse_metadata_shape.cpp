#include "tests/must_fail/must_fail.hpp"

// A byte of metadata tells of four values.
TEGULA_MUST_FAIL(sparse_metadata_shape, "do not fit values") {
  Shared a({64, 64}, f16), places({64, 8}, u8), b({32, 128}, f16);
  Fragment c({64, 32}, f32, 0);
  gemm_sparse(a, places, b.T(), c);  // error
}

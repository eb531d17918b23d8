#include "tests/must_fail/must_fail.hpp"

// Both operands of a sparse product have one type.
TEGULA_MUST_FAIL(sparse_types, "the operand types differ, f16 and bf16") {
  Shared a({64, 64}, f16), places({64, 16}, u8), b({32, 128}, bf16);
  Fragment c({64, 32}, f32, 0);
  gemm_sparse(a, places, b.T(), c);  // error
}

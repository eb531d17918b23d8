#include "tests/must_fail/must_fail.hpp"

// Both operands of a product have one type.
TEGULA_MUST_FAIL(gemm_types, "the operand types differ, f16 and bf16; convert one of them: copy() converts") {
  Shared a({64, 64}, f16), b({64, 64}, bf16);
  Fragment c({64, 64}, f32, 0);
  gemm(a, b, c);  // error
}

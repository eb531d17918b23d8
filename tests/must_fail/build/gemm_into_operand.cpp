#include "tests/must_fail/must_fail.hpp"

// The accumulator is not an operand.
TEGULA_MUST_FAIL(gemm_into_operand, "the accumulator is also an operand") {
  Fragment c({64, 64}, f32, 0);
  gemm(c, c, c);  // error
}

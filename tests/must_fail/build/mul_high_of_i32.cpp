#include "tests/must_fail/must_fail.hpp"

// Halves of products are of natural numbers.
TEGULA_MUST_FAIL(mul_high_of_i32, "mul_high() needs u32, got i32; write u32(x)") {
  print("x", mul_high(scene.block, 3));  // error
}

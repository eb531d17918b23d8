#include "tests/must_fail/must_fail.hpp"

// Products exist of the types that tensor cores know.
TEGULA_MUST_FAIL(gemm_of_naturals, "gemm of u32") {
  Shared a({16, 16}, u32);
  Fragment c({16, 16}, i32, 0);
  gemm(a, a, c);  // error
}

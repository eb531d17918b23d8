#include "tests/must_fail/must_fail.hpp"

// `any` is for conditions.
TEGULA_MUST_FAIL(reduce_any_of_numbers, "it needs boolean") {
  Fragment acc({4, 8}, f32, 0);
  Fragment rows = reduce_any(acc);  // error
}

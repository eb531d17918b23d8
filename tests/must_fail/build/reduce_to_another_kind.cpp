#include "tests/must_fail/must_fail.hpp"

// A reduction keeps the kind.
TEGULA_MUST_FAIL(reduce_to_another_kind, "the result of f32 cannot be i32") {
  Shared s({8, 8}, f32);
  Fragment sum({8}, i32, 0);
  reduce_sum(s, sum);  // error
}

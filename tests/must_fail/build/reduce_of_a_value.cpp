#include "tests/must_fail/must_fail.hpp"

// A tile of rank 0 has no dimension.
TEGULA_MUST_FAIL(reduce_of_a_value, "a tile of rank 0, which is one value; read it with .scalar()") {
  Fragment acc({4}, f32, 0), sum = reduce_sum(acc);
  Fragment again = reduce_sum(sum);  // error
}

#include "tests/must_fail/must_fail.hpp"

// Loops over elements have three indices at most.
TEGULA_MUST_FAIL(argmin_of_rank_4, "reduce_argmin of a tile of rank 4 or more; use slice() or reshape()") {
  Fragment f({2, 2, 2, 2}, f32, 0);
  Fragment places = reduce_argmin(f);  // error
}

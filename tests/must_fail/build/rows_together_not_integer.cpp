#include "tests/must_fail/must_fail.hpp"

// A number of warps is an integer.
TEGULA_MUST_FAIL(rows_together_not_integer, "`together` of when_rows() must be an integer, got f32") {
  Fragment sum({64, 8}, f32, 0);
  Expr number = scene.N(scene.block);
  when_rows({number > 0, number > 1}, {.together = f32(number)}, [&] { clear(sum); });  // error
}

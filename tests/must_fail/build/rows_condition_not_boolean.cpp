#include "tests/must_fail/must_fail.hpp"

// A number is no condition.
TEGULA_MUST_FAIL(rows_condition_not_boolean, "when_rows() needs a boolean condition") {
  Fragment sum({64, 8}, f32, 0);
  Expr number = scene.N(scene.block);
  when_rows({number > 0, number}, [&] { clear(sum); });  // error
}

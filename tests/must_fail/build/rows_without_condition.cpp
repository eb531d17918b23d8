#include "tests/must_fail/must_fail.hpp"

// Which rows a step concerns is said run by run.
TEGULA_MUST_FAIL(rows_without_condition, "needs a condition for each run of rows") {
  Fragment sum({64, 8}, f32, 0);
  when_rows({}, [&] { parallel(sum, [&](Index i, Index j) { sum(i, j) += 1; }); });  // error
}

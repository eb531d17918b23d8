#include "tests/must_fail/must_fail.hpp"

// Each condition is for as many rows.
TEGULA_MUST_FAIL(rows_not_in_runs, "whose rows are not 3 equal runs") {
  Fragment sum({64, 8}, f32, 0);
  when_rows({scene.block > 1, scene.block > 2, scene.block > 3}, [&] {
    parallel(sum, [&](Index i, Index j) { sum(i, j) += 1; });  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// Who left the step out would not report.
TEGULA_MUST_FAIL(rows_report, "prints or asserts") {
  when_rows({scene.block > 1}, [&] {
    assert_that(scene.block > 2, "late");  // error
  });
}

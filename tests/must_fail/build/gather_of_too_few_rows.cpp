#include "tests/must_fail/must_fail.hpp"

// A vector has the number of every row that is gathered.
TEGULA_MUST_FAIL(gather_of_too_few_rows, "gather of 8 rows by a vector of 4") {
  Shared rows({4}, i32), picked({8, 64}, f16);
  clear(rows);
  gather(scene.A, rows, picked);  // error
}

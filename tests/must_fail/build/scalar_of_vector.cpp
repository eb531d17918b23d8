#include "tests/must_fail/must_fail.hpp"

// Only a tile of rank 0 is one value.
TEGULA_MUST_FAIL(scalar_of_vector, "scalar() of a tile of rank 1") {
  Fragment row({4}, f32, 0);
  Expr x = row.scalar();  // error
}

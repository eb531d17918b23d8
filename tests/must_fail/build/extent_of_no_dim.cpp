#include "tests/must_fail/must_fail.hpp"

// A tensor has as many extents as dimensions.
TEGULA_MUST_FAIL(extent_of_no_dim, "extent(2) of a tensor of rank 2") {
  Expr extent = scene.A.extent(2);  // error
}

#include "tests/must_fail/must_fail.hpp"

// A vector has no transpose.
TEGULA_MUST_FAIL(transpose_of_vector, "T() of a tile of rank 1") {
  Shared tile({4}, f32);
  clear(tile.T());  // error
}

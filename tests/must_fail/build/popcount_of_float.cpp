#include "tests/must_fail/must_fail.hpp"

// Nor have they bits to count.
TEGULA_MUST_FAIL(popcount_of_float, "popcount() needs an integer, got f32") {
  print("x", popcount(f32(scene.block)));  // error
}

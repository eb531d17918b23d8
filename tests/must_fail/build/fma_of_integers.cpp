#include "tests/must_fail/must_fail.hpp"

// Integers are not rounded.
TEGULA_MUST_FAIL(fma_of_integers, "fma() needs floating values, got i32") {
  print("x", fma(scene.block, scene.block, scene.block));  // error
}

#include "tests/must_fail/must_fail.hpp"

// A number between 0 and 1 is made of bits.
TEGULA_MUST_FAIL(uniform_of_float, "uniform() of f32; it takes a random word, u32") {
  print("x", uniform(f32(scene.block)));  // error
}

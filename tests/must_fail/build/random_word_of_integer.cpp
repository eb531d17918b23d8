#include "tests/must_fail/must_fail.hpp"

// A counter is made of words.
TEGULA_MUST_FAIL(random_word_of_integer, "philox() of a word of i32; its words are u32: write u32(x)") {
  const RandomWords r = philox({scene.block, 0, 0, 0}, {7, 0});  // error
  print("x", r.x);
}

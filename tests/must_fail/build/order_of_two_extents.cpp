#include "tests/must_fail/must_fail.hpp"

// Turns are counted for each tile of the tensor, and tiles of two extents would count the same rows apart.
TEGULA_MUST_FAIL(order_of_two_extents, "from tiles of different extents in one grid") {
  Fragment tile({8, 64}, f32, 1), half({8, 32}, f32, 1);
  accumulate(scene.C.at(0, 0), tile, {.order = 0, .consecutive = true});
  accumulate(scene.C.at(0, 0), half, {.order = 1, .consecutive = true});  // error
}

#include "tests/must_fail/must_fail.hpp"

// Consecutive orders are counted for each tile of the tensor, so a window may not be across two of them.
TEGULA_MUST_FAIL(order_not_aligned, "the window must begin at a multiple") {
  Fragment tile({8, 64}, f32, 1);
  accumulate(scene.C.at(scene.block * 4, 0), tile, {.order = 0, .consecutive = true});  // error
}

#include "tests/must_fail/must_fail.hpp"

// A promise about orders that are not there.
TEGULA_MUST_FAIL(order_promised_alone, "consecutive orders without an order") {
  Fragment tile({8, 64}, f32, 1);
  accumulate(scene.C.at(0, 0), tile, {.consecutive = true});  // error
}

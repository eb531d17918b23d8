#include "tests/must_fail/must_fail.hpp"

// Contributions that wait for their turn are added after those that do not, so the sum would have no meaning.
TEGULA_MUST_FAIL(order_mixed, "contributions with an order and without one") {
  Fragment tile({8, 64}, f32, 1);
  accumulate(scene.C.at(0, 0), tile, {.order = scene.block});
  accumulate(scene.C.at(8, 0), tile);  // error
}

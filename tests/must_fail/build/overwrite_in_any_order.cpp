#include "tests/must_fail/must_fail.hpp"

// Which contribution is the first, where orders are not promised to begin with 0.
TEGULA_MUST_FAIL(overwrite_in_any_order, "overwrites without consecutive orders") {
  Fragment tile({8, 64}, f32, 1);
  accumulate(scene.C.at(0, 0), tile, {.order = 0, .overwrite = true});  // error
}

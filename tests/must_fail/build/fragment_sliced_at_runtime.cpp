#include "tests/must_fail/must_fail.hpp"

// A register has no run-time number.
TEGULA_MUST_FAIL(fragment_sliced_at_runtime, "can only be sliced at constants") {
  Fragment acc({4, 4}, f32);
  clear(acc.slice(scene.block));  // error
}

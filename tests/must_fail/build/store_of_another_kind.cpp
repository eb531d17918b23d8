#include "tests/must_fail/must_fail.hpp"

// A store does not turn floats into integers.
TEGULA_MUST_FAIL(store_of_another_kind, "cast it with i32(x)") {
  Shared n({1}, i32);
  n(0) = f32(scene.N(0));  // error
}

#include "tests/must_fail/must_fail.hpp"

// A slice has one argument for each dimension at most.
TEGULA_MUST_FAIL(too_many_slots, "slice() got more arguments") {
  Shared tile({64}, f16);
  copy(scene.A.slice(0, all, 1), tile);  // error
}

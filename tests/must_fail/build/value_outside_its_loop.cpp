#include "tests/must_fail/must_fail.hpp"

// A value read in a loop is gone after it.
TEGULA_MUST_FAIL(value_outside_its_loop, "used outside the loop or branch") {
  std::optional<Expr> kept;
  serial(4, [&](Index i) { kept.emplace(scene.N(i)); });
  scene.C(0, 0) = f32(*kept);  // error
}

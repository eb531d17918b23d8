#include "tests/must_fail/must_fail.hpp"

// A value read in a branch may never have been read.
TEGULA_MUST_FAIL(value_outside_its_branch, "used outside the loop or branch") {
  std::optional<Expr> kept;
  when(scene.block > 0, [&] { kept.emplace(scene.N(0)); });
  scene.C(0, 0) = f32(*kept);  // error
}

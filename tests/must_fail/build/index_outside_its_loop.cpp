#include "tests/must_fail/must_fail.hpp"

// An index has no value after its loop.
TEGULA_MUST_FAIL(index_outside_its_loop, "used outside the loop or branch") {
  Shared tile({64, 64}, f16);
  std::optional<Index> kept;
  serial(4, [&](Index i) { kept.emplace(i); });
  copy(scene.A.at(*kept * 64), tile);  // error
}

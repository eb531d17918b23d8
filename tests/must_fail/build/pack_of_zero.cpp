#include "tests/must_fail/must_fail.hpp"

// A processor gets at least one block at a time.
TEGULA_MUST_FAIL_WHOLE(pack_of_zero, "grid option .pack: at least 1") {
  kernel("k", [&] {
    grid(4, {.pack = 0}, [&](Index) {});  // error
  });
}

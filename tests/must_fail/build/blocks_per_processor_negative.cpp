#include "tests/must_fail/must_fail.hpp"

// The number of blocks is not negative.
TEGULA_MUST_FAIL_WHOLE(blocks_per_processor_negative, "grid option .blocks_per_processor") {
  kernel("k", [&] {
    grid(4, {.blocks_per_processor = -1}, [&](Index) {});  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// A block is made of whole warps.
TEGULA_MUST_FAIL_WHOLE(threads_not_warps, "a multiple of 32 up to 1024") {
  kernel("k", [&] {
    grid(4, {.threads = 100}, [&](Index) {});  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// Threads are divided evenly.
TEGULA_MUST_FAIL_WHOLE(cluster_of_three, "1, 2, 4 or 8") {
  kernel("k", [&] {
    grid(4, {.cluster = 3}, [&](Index) {});  // error
  });
}

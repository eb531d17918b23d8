#include "tests/must_fail/must_fail.hpp"

// Clusters are pairs.
TEGULA_MUST_FAIL_WHOLE(cluster_of_three, "1 or 2") {
  kernel("k", [&] {
    grid(4, {.cluster = 3}, [&](Index) {});  // error
  });
}

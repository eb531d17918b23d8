#include <optional>

#include "tests/must_fail/must_fail.hpp"

// The number of blocks is known at the launch.
TEGULA_MUST_FAIL_WHOLE(grid_extent_from_index, "used outside the loop or branch") {
  kernel("k", [&] {
    std::optional<Expr> kept;
    grid(4, [&](Index i) { kept.emplace(i); });
    grid(*kept, [&](Index) {});  // error
  });
}

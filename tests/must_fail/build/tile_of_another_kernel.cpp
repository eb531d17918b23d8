#include <optional>

#include "tests/must_fail/must_fail.hpp"

// A tile belongs to a block of its kernel.
TEGULA_MUST_FAIL_WHOLE(tile_of_another_kernel, "this tile belongs to another kernel") {
  std::optional<Shared> kept;
  kernel("first", [&] { grid(4, [&](Index) { kept.emplace(Shared({4}, f32)); }); });
  kernel("second", [&] {
    grid(4, [&](Index) {
      clear(*kept);  // error
    });
  });
}

#include "tests/must_fail/must_fail.hpp"

// The shape of a tile is constant.
TEGULA_MUST_FAIL(range_of_tile_at_runtime, "a range of a tile must have constant ends") {
  Shared tile({4, 4}, f32);
  clear(tile.slice(all, range(0, scene.block)));  // error
}

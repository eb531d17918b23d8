#include "tests/must_fail/must_fail.hpp"

// Names of tiles appear in generated code.
TEGULA_MUST_FAIL(name_of_tile_not_identifier, "the name `my tile` of a tile must be an identifier") {
  Shared tile("my tile", {64}, f32);  // error
}

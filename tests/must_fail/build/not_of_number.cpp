#include "tests/must_fail/must_fail.hpp"

// Numbers are not conditions.
TEGULA_MUST_FAIL(not_of_number, "`!` needs a boolean, got i32") {
  when(!scene.block, [&] {});  // error
}

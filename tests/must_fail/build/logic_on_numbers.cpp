#include "tests/must_fail/must_fail.hpp"

// `&&` joins conditions.
TEGULA_MUST_FAIL(logic_on_numbers, "`&&` needs booleans, got i32") {
  when(scene.N(0) && scene.block > 0, [&] {});  // error
}

#include "tests/must_fail/must_fail.hpp"

// An i32 and a u32 do not combine silently.
TEGULA_MUST_FAIL(mixed_signs, "`-` mixes u32 and i32; cast one of them: u32(y) or i32(x)") {
  Expr hash = u32(scene.N(0));
  Expr distance = hash - scene.N(1);  // error
}

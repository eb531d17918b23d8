#include "tests/must_fail/must_fail.hpp"

// A float and an integer do not combine silently; the remedy keeps the fraction.
TEGULA_MUST_FAIL(mixed_kinds, "`*` mixes f32 and i32; cast the integer: f32(i)") {
  Fragment acc({4}, f32, 0);
  parallel(acc, [&](Index i) {
    acc(i) = acc(i) * i;  // error
  });
}

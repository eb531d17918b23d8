#include "tests/must_fail/must_fail.hpp"

// The remedy names what has a name.
TEGULA_MUST_FAIL_WHOLE(mixed_kinds_of_a_dim, "`/` mixes i32 and f32; cast the integer: f32(length)") {
  kernel("mean", [] {
    Dim length("length");
    Tensor X = input("X", {length}, f32);
    grid(1, [&](Index) {
      Expr mean = length / X(0);  // error
    });
  });
}

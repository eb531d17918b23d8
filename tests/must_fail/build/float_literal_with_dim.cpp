#include "tests/must_fail/must_fail.hpp"

// A floating literal does not make an integer a float.
TEGULA_MUST_FAIL_WHOLE(float_literal_with_dim, "with an i32 value; write f32(length)") {
  kernel("half", [] {
    Dim length("length");
    output("Y", {length}, f32);
    grid(1, [&](Index) {
      Expr half = length * 0.5f;  // error
    });
  });
}

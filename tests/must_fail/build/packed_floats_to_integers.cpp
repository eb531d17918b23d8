#include "tests/must_fail/must_fail.hpp"

// Floats do not become integers unnoticed.
TEGULA_MUST_FAIL_WHOLE(packed_floats_to_integers, "copy from e2m1 to i32; e2m1 is converted to floats") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index) {
      Fragment numbers({64, 64}, i32);
      copy(out, numbers);  // error
    });
  });
}

#include "tests/must_fail/must_fail.hpp"

// Integers are packed from integers.
TEGULA_MUST_FAIL_WHOLE(packed_from_floats, "copy from f32 to u4; e2m1 is rounded from floats") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index) {
      PackedShared w({64, 64}, u4);
      copy(load(X, {64, 64}), w);  // error
    });
  });
}

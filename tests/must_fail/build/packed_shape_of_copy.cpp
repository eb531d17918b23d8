#include "tests/must_fail/must_fail.hpp"

// A conversion keeps the shape.
TEGULA_MUST_FAIL_WHOLE(packed_shape_of_copy, "of elements of u4 and [64, 16] of numbers differ") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index) {
      PackedShared w({64, 32}, u4);
      Fragment numbers({64, 16}, f32);
      copy(w, numbers);  // error
    });
  });
}

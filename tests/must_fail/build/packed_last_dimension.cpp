#include "tests/must_fail/must_fail.hpp"

// One number of an element is no view.
TEGULA_MUST_FAIL_WHOLE(packed_last_dimension, "slice() drops the last dimension of `W`") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index) {
      PackedTensor column = W.slice(all, 3);  // error
    });
  });
}

#include "tests/must_fail/must_fail.hpp"

// Elements of one packed type are not those of another.
TEGULA_MUST_FAIL_WHOLE(packed_types_of_copy,
                       "copy from u4 to i4; packed types are converted through a tile") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index) {
      PackedShared w({64, 64}, i4);
      copy(W, w);  // error
    });
  });
}

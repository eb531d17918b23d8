#include "tests/must_fail/must_fail.hpp"

// An offset inside an element would shift numbers.
TEGULA_MUST_FAIL_WHOLE(packed_offset, "an offset of the last dimension is not known to be a multiple of 2") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index block) {
      PackedShared w({64, 32}, u4);
      copy(W.at(0, block * 32 + 1), w);  // error
    });
  });
}

#include "tests/must_fail/must_fail.hpp"

// Ranges of packed numbers begin and end with elements.
TEGULA_MUST_FAIL_WHOLE(packed_range, "the beginning of a range of the last dimension") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index block) {
      PackedTensor part = W.slice(all, range(block, 64));  // error
    });
  });
}

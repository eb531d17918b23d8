#include "tests/must_fail/must_fail.hpp"

// A number has one index for each dimension.
TEGULA_MUST_FAIL_WHOLE(packed_index_count, "has rank 2 here and is indexed with 1 value") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index block) {
      print("number", W(block));  // error
    });
  });
}

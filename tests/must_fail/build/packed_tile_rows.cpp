#include "tests/must_fail/must_fail.hpp"

// Rows of a tile fill elements.
TEGULA_MUST_FAIL_WHOLE(packed_tile_rows, "a tile of packed numbers whose rows do not fill elements") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index) {
      PackedShared w({64, 12}, u4.in_words());  // error
    });
  });
}

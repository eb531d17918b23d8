#include "tests/must_fail/must_fail.hpp"

// A conversion keeps the rank.
TEGULA_MUST_FAIL_WHOLE(packed_rank_of_copy, "packed numbers are converted between views of equal rank") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index) {
      Fragment row({64}, f32);
      copy(W, row);  // error
    });
  });
}

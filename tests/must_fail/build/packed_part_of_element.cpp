#include "tests/must_fail/must_fail.hpp"

// No element is written in part.
TEGULA_MUST_FAIL_WHOLE(packed_part_of_element, "copy: rows of 15 numbers do not fill elements") {
  kernel("packed", [] {
    Tensor X = input("X", {64, 64}, f32), Y = input("Y", {64, 64}, i32);
    PackedTensor W = input("W", {64, 64}, u4), out = output("out", {64, 64}, e2m1);
    grid(1, [&](Index) {
      Fragment numbers({64, 15}, f32, 0);
      copy(numbers, out.at(0, 0));  // error
    });
  });
}

#include "tests/must_fail/must_fail.hpp"

// Rows of a tensor fill elements.
TEGULA_MUST_FAIL_WHOLE(
    packed_odd_rows, "the rows of `W` fill whole elements: 2 numbers of u4 share an element; pad the rows") {
  kernel("packed", [] {
    PackedTensor W = input("W", {64, 63}, u4);  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// A call must determine every extent.
TEGULA_MUST_FAIL_WHOLE(unsolvable_dim, "no parameter has the Dim `N` as an extent") {
  kernel("k", [&] {
    Dim N("N");  // error
    Tensor X = input("X", {N * 2}, f32);
    grid(N, [&](Index) {});
  });
}

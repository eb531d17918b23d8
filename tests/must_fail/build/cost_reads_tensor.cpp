#include "tests/must_fail/must_fail.hpp"

// Blocks are put in order before the grid starts.
TEGULA_MUST_FAIL_WHOLE(cost_reads_tensor, "it may use the grid's indices, dims and scalars only") {
  kernel("k", [&] {
    Tensor X = input("X", {4}, i32);
    grid(4, {.order = Order::heavy_first([&](Index i) -> Expr { return X(i); })}, [&](Index) {});  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// A strip has a row.
TEGULA_MUST_FAIL_WHOLE(order_of_no_rows, "grouped(n) needs n >= 1") {
  kernel("k", [&] {
    grid(4, 4, {.order = Order::grouped(0)}, [&](Index, Index) {});  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// Kernels do not nest.
TEGULA_MUST_FAIL_WHOLE(kernel_in_kernel, "kernel() inside kernel()") {
  kernel("outer", [&] {
    kernel("inner", [&] {});  // error
  });
}

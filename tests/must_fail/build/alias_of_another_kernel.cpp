#include <optional>

#include "tests/must_fail/must_fail.hpp"

// So do only tensors of the same kernel.
TEGULA_MUST_FAIL_WHOLE(alias_of_another_kernel, "`x` belongs to another kernel") {
  std::optional<Tensor> kept;
  kernel("first", [&] {
    kept = output("x", {4}, f32);
    grid(4, [&](Index i) { (*kept)(i) = 1; });
  });
  kernel("second", [&] {
    Tensor y = output("y", {4}, f32);
    may_alias(y, *kept);  // error
    grid(4, [&](Index i) { y(i) = 1; });
  });
}

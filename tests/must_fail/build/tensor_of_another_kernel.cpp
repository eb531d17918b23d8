#include <optional>

#include "tests/must_fail/must_fail.hpp"

// A tensor is a parameter of its kernel.
TEGULA_MUST_FAIL_WHOLE(tensor_of_another_kernel, "belongs to another kernel") {
  std::optional<Tensor> kept;
  kernel("first", [&] {
    kept = output("x", {4}, f32);
    grid(4, [&](Index i) { (*kept)(i) = 1; });
  });
  kernel("second", [&] {
    Tensor y = output("y", {4}, f32);
    grid(4, [&](Index i) {
      y(i) = 1;
      (*kept)(i) = 2;  // error
    });
  });
}

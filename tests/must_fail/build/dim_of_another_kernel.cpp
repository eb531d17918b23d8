#include "tests/must_fail/must_fail.hpp"

// A Dim belongs to the kernel that declares it.
TEGULA_MUST_FAIL_WHOLE(dim_of_another_kernel, "belongs to another kernel") {
  std::optional<Dim> kept;
  kernel("first", [&] {
    kept.emplace("N");
    Tensor X = input("X", {*kept}, f32);
    grid(1, [&](Index) {});
  });
  kernel("second", [&] {
    Tensor X = input("X", {*kept}, f32);  // error
  });
}

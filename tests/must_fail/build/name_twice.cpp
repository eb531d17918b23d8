#include "tests/must_fail/must_fail.hpp"

// Parameters are told apart by name.
TEGULA_MUST_FAIL_WHOLE(name_twice, "is used twice") {
  kernel("k", [&] {
    Tensor X = input("X", {4}, i32);
    Tensor Y = input("X", {4}, i32);  // error
  });
}

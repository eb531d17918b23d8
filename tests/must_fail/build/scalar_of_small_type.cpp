#include "tests/must_fail/must_fail.hpp"

// A number of the call has a type that is computed in.
TEGULA_MUST_FAIL_WHOLE(scalar_of_small_type, "scalars are f32") {
  kernel("k", [&] {
    Expr x = scalar("x", bf16);  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// Tensors have at most 8 dimensions.
TEGULA_MUST_FAIL_WHOLE(rank_of_tensor, "at most 8 is supported") {
  kernel("k", [&] {
    input("X", {1, 1, 1, 1, 1, 1, 1, 1, 1}, f32);  // error
  });
}

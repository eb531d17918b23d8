#include "tests/must_fail/must_fail.hpp"

// A part of a tensor has no row-major order of its own.
TEGULA_MUST_FAIL(reshape_of_slice, "reshape the whole tensor, then slice it") {
  Tensor row = scene.A.slice(0).reshape({8, 8});  // error
}

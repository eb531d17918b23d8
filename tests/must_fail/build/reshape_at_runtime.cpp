#include "tests/must_fail/must_fail.hpp"

// The shape of a view of a whole tensor is known at the launch.
TEGULA_MUST_FAIL(reshape_at_runtime, "an extent of reshape() must be known at the launch") {
  Tensor view = scene.A.reshape({scene.block, 64});  // error
}

#include "tests/must_fail/must_fail.hpp"

// otherwise() belongs to the when() before it.
TEGULA_MUST_FAIL(otherwise_late, "must follow its when() directly") {
  auto branch = when(scene.block > 0, [&] { scene.C(0, 0) = 1.0f; });
  scene.C(0, 1) = 1.0f;
  std::move(branch).otherwise([&] {});  // error
}

#include "tests/must_fail/must_fail.hpp"

// A register belongs to one thread.
TEGULA_MUST_FAIL(atomic_on_fragment, "which belongs to one thread; use a Shared tile") {
  Fragment row({4}, f32, 0);
  parallel(row, [&](Index i) {
    atomic_add(row(i), 1.0f);  // error
  });
}

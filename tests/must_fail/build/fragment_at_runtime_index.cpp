#include "tests/must_fail/must_fail.hpp"

// A register has no run-time number.
TEGULA_MUST_FAIL(fragment_at_runtime_index,
                 "can only be indexed by the indices of parallel() and constants") {
  Fragment row({64}, f32, 0), other({64}, f32);
  parallel(other, [&](Index i) {
    other(i) = row(scene.N(i));  // error
  });
}

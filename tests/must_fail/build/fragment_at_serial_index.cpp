#include "tests/must_fail/must_fail.hpp"

// A register has no run-time number.
TEGULA_MUST_FAIL(fragment_at_serial_index, "keep the data in a Shared tile") {
  Fragment row({64}, f32, 0);
  Shared other({4}, f32);
  serial(4, [&](Index k) {
    parallel(other, [&](Index i) {
      other(i) = row(k);  // error
    });
  });
}

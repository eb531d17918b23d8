#include "tests/must_fail/must_fail.hpp"

// A pipeline is the work of the whole block.
TEGULA_MUST_FAIL(pipelined_in_parallel, "cannot be inside parallel()") {
  parallel(4, [&](Index) {
    pipelined(4, [&](Index) {});  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// No processor adds bytes indivisibly.
TEGULA_MUST_FAIL(atomic_on_small_type, "atomic add on i8") {
  Shared counts({4}, i8);
  atomic_add(counts(0), 1);  // error
}

#include "tests/must_fail/must_fail.hpp"

// A requirement on C++ values is checked at once.
TEGULA_MUST_FAIL_WHOLE(false_requirement, "heads must divide") {
  kernel("k", [&] {
    require(7 % 2 == 0, "heads must divide");  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// A loop that runs while a condition holds changes what the condition reads, or is left.
TEGULA_MUST_FAIL(while_without_end, "never ends") {
  Var n = 0, sum = 0;
  loop_while([&] { return n < 3; }, [&] { sum += 1; });  // error
}

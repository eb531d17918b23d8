#include "tests/must_fail/must_fail.hpp"

// Truths are not summed.
TEGULA_MUST_FAIL(reduce_sum_of_booleans, "use reduce_any or reduce_all") {
  Shared s({8, 8}, boolean);
  Fragment sum = reduce_sum(s);  // error
}

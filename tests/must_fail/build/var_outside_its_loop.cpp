#include "tests/must_fail/must_fail.hpp"

// Every iteration has its own variable.
TEGULA_MUST_FAIL(var_outside_its_loop, "used outside the loop or branch") {
  std::optional<Var> kept;
  serial(4, [&](Index i) { kept.emplace(i); });
  *kept = 1;  // error
}

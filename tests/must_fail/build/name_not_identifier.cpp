#include "tests/must_fail/must_fail.hpp"

// Names appear in generated code.
TEGULA_MUST_FAIL_WHOLE(name_not_identifier, "must be an identifier") {
  kernel("my kernel", [&] {});  // error
}

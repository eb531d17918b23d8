#include "tests/must_fail/must_fail.hpp"

// A pipeline has stages.
TEGULA_MUST_FAIL(stages_negative, "stages is -1") {
  pipelined(4, {.stages = -1}, [&](Index) {});  // error
}

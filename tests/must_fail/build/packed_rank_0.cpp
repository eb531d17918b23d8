#include "tests/must_fail/must_fail.hpp"

// Packed numbers are those of rows.
TEGULA_MUST_FAIL_WHOLE(packed_rank_0, "`W` has rank 0; packed numbers are those of a last dimension") {
  kernel("packed", [] {
    PackedTensor W = input("W", {}, u4);  // error
  });
}

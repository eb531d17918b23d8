#include "tests/must_fail/must_fail.hpp"

// An element of a tensor of rank 0 has no row.
TEGULA_MUST_FAIL_WHOLE(packed_number_alone, "packed numbers in a tensor of rank 0") {
  kernel("packed", [] {
    Tensor byte = input("byte", {}, u8);
    PackedTensor W(byte, u4);  // error
  });
}

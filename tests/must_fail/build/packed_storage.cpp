#include "tests/must_fail/must_fail.hpp"

// Words are not bytes.
TEGULA_MUST_FAIL_WHOLE(packed_storage, "packed numbers in a tensor of u8; u4 in words is stored in u32") {
  kernel("packed", [] {
    Tensor bytes = input("bytes", {64, 32}, u8);
    PackedTensor W(bytes, u4.in_words());  // error
  });
}

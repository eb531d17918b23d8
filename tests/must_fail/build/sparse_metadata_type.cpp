#include "tests/must_fail/must_fail.hpp"

// Metadata of a sparse product are bytes.
TEGULA_MUST_FAIL(sparse_metadata_type, "the metadata are i32; they are u8, as compress_24 writes them") {
  Shared a({64, 64}, f16), places({64, 16}, i32), b({32, 128}, f16);
  Fragment c({64, 32}, f32, 0);
  gemm_sparse(a, places, b.T(), c);  // error
}

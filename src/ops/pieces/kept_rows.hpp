// Rows that are read twice, of which shared memory keeps pieces from one reading to the next.
#pragma once
#include "ops/pieces/rows.hpp"

namespace tegula::ops {

// On a GPU: all pieces where blocks that share a processor have room for whole rows, else as many as one
// block of all its threads has room for. `tensors` are read together.
LongRows kept_rows(std::int64_t features, DType type, bool on_gpu, int tensors = 1);

}  // namespace tegula::ops

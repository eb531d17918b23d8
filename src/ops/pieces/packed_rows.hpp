// What a CPU's products of few rows take beside their arithmetic.
#pragma once
#include <cstdint>

#include "ops/schema/launch.hpp"

namespace tegula::ops {

// On a CPU: `rows` of a tile, each of which is a query of one head, share the keys and values of a step,
// which are packed for all of them once.
void note_packed_for_few_rows(std::int64_t rows, Launch& launch);

}  // namespace tegula::ops

// Converts a row of elements to another dtype as casts of the language do: integers wrap, floats become
// integers by truncation and saturation, and become small floats through f32.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tegula/dtype.hpp"

namespace tegula {

// The elements of a row are `step` bytes apart.
struct ConstRow {
  const std::byte* data;
  std::int64_t step;
};
struct Row {
  std::byte* data;
  std::int64_t step;
};

void convert_row(DType from_type, ConstRow from, DType to_type, Row to, std::int64_t count);

}  // namespace tegula

// The order of a matrix of 16-bit elements in shared memory from which tensor cores read.
#pragma once
#include <cstdint>

namespace tegula::layout {

// The matrix is cut into blocks of `columns` columns; each row of a block is 32, 64 or 128 bytes, and its
// pieces of 16 bytes are exchanged among neighbouring rows so that the hardware reads eight rows without
// conflict. This is what the copy engine and the tensor cores expect.
struct TileOrder {
  int columns = 0;  // 0: row by row

  bool is_swizzled() const { return columns != 0; }
};

// Row by row where no block fits.
inline TileOrder swizzled_order(std::int64_t rows, std::int64_t columns) {
  if (rows % 8 != 0) return {};
  for (const int block : {64, 32, 16}) {
    if (columns % block == 0) return {block};
  }
  return {};
}

}  // namespace tegula::layout

// The order of a matrix in shared memory from which products read.
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

// For elements of one, two or four bytes; row by row if no block fits.
inline TileOrder swizzled_order(std::int64_t rows, std::int64_t columns, int bytes) {
  if (rows % 8 != 0 || bytes > 4) return {};
  for (const int block : {128 / bytes, 64 / bytes, 32 / bytes}) {
    if (columns % block == 0) return {block};
  }
  return {};
}

}  // namespace tegula::layout

#include "ops/pieces/matrices.hpp"

#include "ops/pieces/plan.hpp"
#include "ops/schema/bound.hpp"

namespace tegula::ops {

TensorRef in_order(TensorRef matrix, bool on_gpu, bool& transposed) {
  const bool is_column = on_gpu && matrix.size(-1) == 1 && matrix.size(-2) > 1;
  if ((has_unit_stride(matrix, -1) && !is_column) || !has_unit_stride(matrix, -2)) return matrix;
  transposed = !transposed;
  return matrix.transpose(1, 2);
}

bool starts_off_pieces(const TensorRef& tensor) {
  if (nelements(tensor) == 0) return false;
  const std::int64_t piece = bytes_of_piece * 8 / tensor.dtype.bits();
  bool is_off = reinterpret_cast<std::uintptr_t>(tensor.data) % bytes_of_piece != 0;
  for (int dim = 0; dim + 1 < tensor.rank(); ++dim)
    is_off |= tensor.size(dim) > 1 && tensor.stride(dim) % piece != 0;
  return is_off;
}

void note_padding(Launch& launch) {
  launch.note([] {
    return std::string(
        "plan: rows that do not begin at multiples of 16 bytes are copied first, or written last");
  });
}

}  // namespace tegula::ops

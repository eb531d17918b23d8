// How matrices of a call are laid out in memory.
#pragma once
#include "ops/schema/launch.hpp"
#include "tegula/runtime.hpp"

namespace tegula::ops {

// A matrix [batch, rows, columns] whose rows are contiguous is read as it is; one whose columns do as its
// transpose. One column is for a GPU a row, of which the copy engine takes many elements.
TensorRef in_order(TensorRef matrix, bool on_gpu, bool& transposed);
// Whether some row begins off 16 bytes, so that the copy engine does not take the tensor.
bool starts_off_pieces(const TensorRef& tensor);
// That a call has such rows, which grids of their own copy.
void note_padding(Launch& launch);

}  // namespace tegula::ops

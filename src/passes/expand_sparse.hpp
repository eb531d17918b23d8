// Sparse products without an instruction: the sparse operand becomes a dense tile.
#pragma once
#include <functional>

#include "ir/kernel.hpp"

namespace tegula::passes {

// Expands 2:4 sparse operands, in the format of gemm_sparse (include/tegula/lang/sparse.hpp), to tiles [m, k]
// and multiplies those. `stays` says whether a product in a grid with so many threads is left unchanged.
ir::Kernel expand_sparse(const ir::Kernel& kernel,
                         const std::function<bool(const ir::Gemm& gemm, int threads)>& stays);

}  // namespace tegula::passes

// Sparse products where no instruction has them: the operand becomes a dense tile.
#pragma once
#include <functional>

#include "ir/kernel.hpp"

namespace tegula::passes {

// Of two values of each four along k, as gemm_sparse (include/tegula/lang/sparse.hpp) says it, a tile [m, k]
// is made and multiplied. `stays` says of a product in the grid, run by so many threads, that it is left.
ir::Kernel expand_sparse(const ir::Kernel& kernel,
                         const std::function<bool(const ir::Gemm& gemm, int threads)>& stays);

}  // namespace tegula::passes

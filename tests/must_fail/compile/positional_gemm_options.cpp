#include "tegula/lang.hpp"
using namespace tegula::lang;

// Options are named.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  gemm(tile, tile.T(), acc, {Accumulate::tensor_core});  // error
}

#include "tegula/lang.hpp"
using namespace tegula::lang;

// says: the sum is a Fragment

// A product is summed in registers.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  Shared sum({64, 64}, f32);
  gemm(tile, tile.T(), sum);  // error
}

#include "tegula/lang.hpp"
using namespace tegula::lang;

// Options are named.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  copy(A.at(0), acc, {-1});  // error
}

#include "tegula/lang.hpp"
using namespace tegula::lang;

// A body over two extents takes two indices.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  parallel(64, 64, [&](Index i) { row(i) = 0; });  // error
}

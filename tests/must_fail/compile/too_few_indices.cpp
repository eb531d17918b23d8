#include "tegula/lang.hpp"
using namespace tegula::lang;

// says: one Index for each extent

// A body over two extents takes two indices.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  parallel(64, 64, [&](Index i) { row(i) = 0; });  // error
}

#include "tegula/lang.hpp"
using namespace tegula::lang;
// says: the extents of a tile are C++ numbers

// The shape of a tile is constant.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  Dim K("K");
  Fragment f({64, K}, f32, 0);  // error
}

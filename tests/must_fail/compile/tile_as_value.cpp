#include "tegula/lang.hpp"
using namespace tegula::lang;

// says: of elements: parallel(t,

// A whole tile is not a value.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  parallel(row, [&](Index i) {
    row(i) = row * 2;  // error
  });
}

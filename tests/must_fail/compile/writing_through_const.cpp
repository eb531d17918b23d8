#include "tegula/lang.hpp"
using namespace tegula::lang;

// A const tile is read only.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  const Fragment& fixed = acc;
  parallel(fixed, [&](Index i, Index j) {
    fixed(i, j) = 0;  // error
  });
}

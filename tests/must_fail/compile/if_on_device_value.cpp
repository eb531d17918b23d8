#include "tegula/lang.hpp"
using namespace tegula::lang;

// C++ `if` runs while the program is built.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  parallel(acc, [&](Index i, Index j) {
    if (acc(i, j) > 0) acc(i, j) = 0;  // error
  });
}

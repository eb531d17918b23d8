#include "tegula/lang.hpp"
using namespace tegula::lang;

// C++ `while` runs while the program is built.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  Var n = 0;
  while (n < 3) n += 1;  // error
}

#include "tegula/lang.hpp"
using namespace tegula::lang;

// `?:` runs while the program is built.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  Expr x = block < 3 ? 1 : 2;  // error
}

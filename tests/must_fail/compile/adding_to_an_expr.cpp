#include "tegula/lang.hpp"
using namespace tegula::lang;
// says: what changes is a Var

// An Expr never changes.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  Expr sum = 0;
  sum += 1;  // error
}

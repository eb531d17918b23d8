#include "tegula/lang.hpp"
using namespace tegula::lang;
// says: write `Expr x = a(i)

// `auto` keeps a place, not a value.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  auto x = A(block);
  A(0) = x;  // error
}

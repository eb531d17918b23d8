#include "tegula/lang.hpp"
using namespace tegula::lang;
// says: write `Expr x = a(i)

// `auto` keeps a place, not a value.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  parallel(acc, [&](Index i, Index j) {
    auto x = acc(i, j);
    acc(i, j) = x * 2;  // error
  });
}

#include "tegula/lang.hpp"
using namespace tegula::lang;

// A second variable is made from a value.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  Var x = 0;
  Var y = x;  // error
}

#include "tegula/lang.hpp"
using namespace tegula::lang;

// A value that is not used is a mistake.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  block + 1;  // error
}

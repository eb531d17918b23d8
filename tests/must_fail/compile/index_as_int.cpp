#include "tegula/lang.hpp"
using namespace tegula::lang;

// An index has no value while the program is built.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  int n = block;  // error
}

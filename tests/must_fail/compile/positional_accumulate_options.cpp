#include "tegula/lang.hpp"
using namespace tegula::lang;

// Options are named.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  accumulate(A.at(0), acc, {block});  // error
}

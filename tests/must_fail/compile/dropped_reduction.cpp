#include "tegula/lang.hpp"
using namespace tegula::lang;
// says: reduce_sum

// An operation that returns a Fragment does nothing else.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  reduce_sum(acc);  // error
}

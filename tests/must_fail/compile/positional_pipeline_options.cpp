#include "tegula/lang.hpp"
using namespace tegula::lang;

// Hints are named.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  pipelined(4, {3}, [&](Index) {});  // error
}
// says: options have names: {.stages = 3}

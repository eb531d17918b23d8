#include "tegula/lang.hpp"
using namespace tegula::lang;

// Hints are checked by the compiler.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  pipelined(4, {.stage = 3}, [&](Index) {});  // error
}

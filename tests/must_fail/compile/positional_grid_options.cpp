#include "tegula/lang.hpp"
using namespace tegula::lang;

// Hints are named.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  grid(4, {64, true}, [&](Index) {});  // error
}
// says: options have names: grid(x, {.threads = 128}, body)

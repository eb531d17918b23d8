#include "tegula/lang.hpp"
using namespace tegula::lang;

// Hints are named; a lone number is no extent either, where the body takes one index.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  grid(4, {128}, [&](Index) {});  // error
}
// says: options have names: grid(x, {.threads = 128}, body)

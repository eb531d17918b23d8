#include "tegula/lang.hpp"
using namespace tegula::lang;

// A conversion makes a new tile.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  acc.to(bf16);  // error
}

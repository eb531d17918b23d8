#include "tegula/lang.hpp"
using namespace tegula::lang;

// Options are named.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  Tensor C = output("C", {64}, f32, {true});  // error
}

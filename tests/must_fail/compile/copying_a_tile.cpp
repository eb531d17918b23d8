#include "tegula/lang.hpp"
using namespace tegula::lang;

// A tile is not copied implicitly.
void program(Tensor A, Tensor N, Fragment& acc, Fragment& row, Shared& tile, Index block) {
  Fragment other = acc;  // error
}

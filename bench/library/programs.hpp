// Programs such as users write, for the costs of compiling and calling.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::bench::programs {

lang::Kernel row_scaling();  // y = 2 x + 1, both [n, 256]; a block has 32 rows
lang::Kernel row_softmax();
lang::Kernel product_and_exponential();

}  // namespace tegula::bench::programs

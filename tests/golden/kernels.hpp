// Small programs that between them use most of the language.
#pragma once
#include "tegula/lang.hpp"

namespace golden {

using tegula::lang::Kernel;

Kernel vector_add();
Kernel row_softmax();
Kernel gemm();
Kernel attention();
Kernel block_sparse();

}  // namespace golden

// How reductions and scans combine values on a GPU.
#pragma once
#include "ir/ir.hpp"

namespace tegula::codegen {

// The value that changes nothing, and the device's name of the operation.
const char* identity_of(ir::ReduceOp op, DType type);
const char* combination_of(ir::ReduceOp op);

}  // namespace tegula::codegen

// The operator's struct, by which tests ask for its formula.
#pragma once
#include "ops/schema/table.hpp"
#include "tegula/ops/gemm.hpp"

namespace tegula::ops {

struct Gemm : GemmOptions {
  TensorRef a = {}, b = {};
};

const OperatorSchema& gemm_schema();

}  // namespace tegula::ops

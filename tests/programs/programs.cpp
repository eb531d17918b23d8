#include "tests/programs/list.hpp"

namespace programs {

std::vector<Program> all_programs() {
  return {rms_norm(),          layer_norm(),
          rms_norm_gradient(), rope(),
          cross_entropy(),     gemv(),
          gemv_ternary(),      gemm_fp8_scaled(),
          grouped_gemm(),      grouped_gemm_weight_gradient(),
          grouped_gemm_fp8()};
}

}  // namespace programs

#include "tests/programs/list.hpp"

namespace programs {

std::vector<Program> all_programs() {
  return {rms_norm(),
          layer_norm(),
          rms_norm_gradient(),
          rope(),
          cross_entropy(),
          gated_delta_gates(),
          gated_delta_kkt(),
          gated_delta_inverse(),
          gated_delta_w_u(),
          gated_delta_state(),
          gated_delta_out(),
          gated_delta_prefill(),
          gemv(),
          gemv_ternary(),
          gemm_fp8_scaled(),
          grouped_gemm(),
          grouped_gemm_weight_gradient(),
          grouped_gemm_fp8(),
          gqa_decode(),
          mla_decode(),
          mla_decode_fp8(),
          mla_sparse_decode_fp8(),
          mla_sparse_prefill(),
          lightning_indexer(),
          paged_indexer()};
}

}  // namespace programs

// All programs, by family.
#pragma once
#include "tests/programs/program.hpp"

namespace programs {

// Rows, scans and recurrences.
Program rms_norm();
Program layer_norm();
Program rms_norm_gradient();
Program rope();
Program cross_entropy();
Program gated_delta_gates();
Program gated_delta_kkt();
Program gated_delta_inverse();
Program gated_delta_w_u();
Program gated_delta_state();
Program gated_delta_out();
Program gated_delta_prefill();

// Products.
Program gemv();
Program gemv_ternary();
Program gemm_fp8_scaled();
Program grouped_gemm();
Program grouped_gemm_weight_gradient();
Program grouped_gemm_fp8();

// Attention of few tokens, or to chosen keys.
Program gqa_decode();
Program mla_decode();
Program mla_decode_fp8();
Program mla_sparse_decode_fp8();
Program mla_sparse_prefill();
Program lightning_indexer();
Program paged_indexer();

}  // namespace programs

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
Program gated_delta_state_gradient();
Program gated_delta_out_gradient();
Program hadamard();
Program scan();
Program topk_gating();
Program mamba_chunk_state();
Program mamba_state_passing();
Program mamba_chunk_scan();
Program linear_attention();
Program linear_attention_gradient();
Program flex_attention();

// Products.
Program gemv();
Program gemv_ternary();
Program gemm_fp8_scaled();
Program gemm_split_k();
Program gemm_stream_k();
Program gemm_persistent();
Program gemm_int4();
Program gemv_int4();
Program gemm_mxfp4();
Program grouped_gemm_mxfp4();
Program moe_shared();
Program moe_routed();
Program block_sparse_gemm();
Program gemm_sparse24();
Program gemm_i8();
Program cast_fp8();
Program convolution();
Program grouped_gemm();
Program grouped_gemm_weight_gradient();
Program grouped_gemm_fp8();

// Attention of few tokens, or to chosen keys.
Program gqa_decode();
Program mla_decode();
Program mla_decode_scheduled();
Program mla_decode_fp8();
Program mla_sparse_decode_fp8();
Program mla_sparse_prefill();
Program mla_sparse_gradient();
Program lightning_indexer();
Program paged_indexer();
Program topk_selector();
Program masked_attention();
Program vertical_slash_index();
Program vertical_slash_attention();
Program slash_estimate();
Program nsa_compression();

}  // namespace programs

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

// Products.
Program gemv();
Program gemv_ternary();
Program gemm_fp8_scaled();
Program grouped_gemm();
Program grouped_gemm_weight_gradient();
Program grouped_gemm_fp8();

}  // namespace programs

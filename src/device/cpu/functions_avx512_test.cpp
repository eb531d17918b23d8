// The device headers compiled for AVX-512; see testing/functions.hpp.
#define TABLE functions_avx512
#define SUPPORTED                                                             \
  (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && \
   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
#include "device/cpu/testing/functions.inc"

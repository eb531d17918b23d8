// The device headers compiled for AVX2; see testing/functions.hpp.
#define TABLE functions_avx2
#define SUPPORTED (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#include "device/cpu/testing/functions.inc"

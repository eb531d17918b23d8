// Instances of templates that most kernels need, for kernels that are linked to a library (see isa.hpp):
// declared in a kernel, defined in the library.
#pragma once
#include "gemm.hpp"
#include "pack.hpp"
#include "tile.hpp"

#if defined(TEGULA_CPU_LIBRARY)
#define TEGULA_CPU_INSTANCE template
#else
#define TEGULA_CPU_INSTANCE extern template
#endif

TEGULA_CPU_BEGIN

#define TEGULA_CPU_ROWS(R, Wide)                                                                             \
  TEGULA_CPU_INSTANCE void gemm_rows<float, R, Wide>(long, const float*, long, long, const float*, float*,   \
                                                     long, bool);                                            \
  TEGULA_CPU_INSTANCE void gemm_rows<float, R, Wide>(long, const float*, long, long, const float*, float*,   \
                                                     long, bool, const char*, long, long, long);             \
  TEGULA_CPU_INSTANCE void gemm_rows_and_pack<float, R, Wide>(long, const float*, long, long, const float*,  \
                                                              long, float*, float*, long, bool, const char*, \
                                                              long, long, long);
#define TEGULA_CPU_HEIGHT(R) TEGULA_CPU_ROWS(R, true) TEGULA_CPU_ROWS(R, false)
TEGULA_CPU_HEIGHT(1)
TEGULA_CPU_HEIGHT(2)
TEGULA_CPU_HEIGHT(3)
TEGULA_CPU_HEIGHT(4)
TEGULA_CPU_HEIGHT(5)
TEGULA_CPU_HEIGHT(6)
#if TEGULA_CPU_W == 16
TEGULA_CPU_HEIGHT(7)
TEGULA_CPU_HEIGHT(8)
TEGULA_CPU_HEIGHT(9)
TEGULA_CPU_HEIGHT(10)
TEGULA_CPU_HEIGHT(11)
TEGULA_CPU_HEIGHT(12)
TEGULA_CPU_HEIGHT(13)
TEGULA_CPU_HEIGHT(14)
#endif
#undef TEGULA_CPU_HEIGHT
#undef TEGULA_CPU_ROWS

TEGULA_CPU_INSTANCE void store_transposed<float>(float*, long, long, const float*);
TEGULA_CPU_INSTANCE void load_tile<float, float, Unrounded>(float*, long, long, long, long, const float*,
                                                            long, long, Inside, float, Unrounded);
TEGULA_CPU_INSTANCE void store_tile<float, float>(float*, long, long, const float*, long, long, Inside);

TEGULA_CPU_END
#undef TEGULA_CPU_INSTANCE

// The instruction set that a printed kernel is compiled for, and its vector types.
//
// The compiler's own vector extensions are used instead of <immintrin.h>, whose parsing alone would cost more
// than a whole kernel may take to compile. W is the number of 32-bit lanes of one register; every vector type
// has W lanes, whatever its element, so that printed code counts in one unit.
#pragma once
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define TEGULA_CPU_AVX512 1
#define TEGULA_CPU_ISA avx512
#define TEGULA_CPU_W 16
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define TEGULA_CPU_AVX2 1
#define TEGULA_CPU_ISA avx2
#define TEGULA_CPU_W 8
#else
#define TEGULA_CPU_ISA portable
#define TEGULA_CPU_W 4
#endif

// How functions are compiled. A kernel inlines them, so that what passes between them stays in registers.
// Where hundreds of kernels are compiled that each run once, all their time goes into doing so: they define
// TEGULA_CPU_LINKED, and are linked to a library of these functions, which is kernel.hpp compiled with
// TEGULA_CPU_LIBRARY. SHARED are functions that are never inlined, TEMPLATE those that no library could list.
#if defined(TEGULA_CPU_LIBRARY)
#define TEGULA_CPU_INLINE
#define TEGULA_CPU_SHARED
#elif defined(TEGULA_CPU_LINKED)
#define TEGULA_CPU_INLINE extern inline __attribute__((gnu_inline))
#define TEGULA_CPU_SHARED
#else
#define TEGULA_CPU_INLINE static inline __attribute__((always_inline))
#define TEGULA_CPU_SHARED static __attribute__((noinline))
#endif
#if defined(TEGULA_CPU_LINKED)
#define TEGULA_CPU_TEMPLATE static inline
#define TEGULA_CPU_MEMBER inline
#else
#define TEGULA_CPU_TEMPLATE static inline __attribute__((always_inline))
#define TEGULA_CPU_MEMBER inline __attribute__((always_inline))
#endif

// The inner namespace keeps kernels of several instruction sets apart inside one program.
#define TEGULA_CPU_TEXT_OF(x) #x
#define TEGULA_CPU_TEXT(x) TEGULA_CPU_TEXT_OF(x)
#define TEGULA_CPU_BEGIN \
  namespace tegula_cpu { \
  inline namespace TEGULA_CPU_ISA {
#define TEGULA_CPU_END \
  }                    \
  }

TEGULA_CPU_BEGIN

constexpr int W = TEGULA_CPU_W;

typedef float vf __attribute__((vector_size(4 * TEGULA_CPU_W)));
typedef int32_t vi __attribute__((vector_size(4 * TEGULA_CPU_W)));
typedef uint32_t vu __attribute__((vector_size(4 * TEGULA_CPU_W)));

// A mask is what comparisons of vf, vi and vu give: -1 in lanes that hold, 0 in the others.
typedef vi vm;

// Half as many lanes of 64 bits fill one register; vd and vl (wide.hpp) are pairs of these.
typedef double half_d __attribute__((vector_size(4 * TEGULA_CPU_W)));
typedef int64_t half_l __attribute__((vector_size(4 * TEGULA_CPU_W)));
typedef float half_f __attribute__((vector_size(2 * TEGULA_CPU_W)));
typedef int32_t half_i __attribute__((vector_size(2 * TEGULA_CPU_W)));

// Narrow elements on their way between memory and 32-bit lanes.
typedef uint16_t vector_u16 __attribute__((vector_size(2 * TEGULA_CPU_W)));
typedef int16_t vector_i16 __attribute__((vector_size(2 * TEGULA_CPU_W)));
typedef uint8_t vector_u8 __attribute__((vector_size(TEGULA_CPU_W)));
typedef int8_t vector_i8 __attribute__((vector_size(TEGULA_CPU_W)));

// Storage-only element types. The struct makes overloads of load and store pick the conversion.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
struct e4m3 {
  uint8_t bits;
};
struct e5m2 {
  uint8_t bits;
};
struct boolean {
  uint8_t bits;
};

TEGULA_CPU_END

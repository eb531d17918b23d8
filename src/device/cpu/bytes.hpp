// Sums of products of the bytes of words: four of them a lane and instruction.
#pragma once
#include "vector.hpp"

TEGULA_CPU_BEGIN

// sum + the products of the unsigned bytes of `a` with the signed bytes of `b`. Sums wrap.
#if defined(__AVX512VNNI__)
TEGULA_CPU_INLINE vi dot_bytes(vi sum, vu a, vu b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
  return sum;
}
#elif TEGULA_CPU_W > 4
// Sums of the products of neighbours among numbers of 16 bits.
TEGULA_CPU_INLINE vi add_pairs(vu a, vu b) {
  vi sum;
  asm("vpmaddwd %2, %1, %0" : "=v"(sum) : "v"(a), "vm"(b));
  return sum;
}
TEGULA_CPU_INLINE vi dot_bytes(vi sum, vu a, vu b) {
  typedef int16_t halves __attribute__((vector_size(4 * W)));
  const halves even = (halves)(b << 8) >> 8, odd = (halves)b >> 8;
  return sum + add_pairs(a & 0xff00ffu, (vu)even) + add_pairs((a >> 8) & 0xff00ffu, (vu)odd);
}
#else
TEGULA_CPU_INLINE vi dot_bytes(vi sum, vu a, vu b) {
  for (int i = 0; i < 4; ++i) sum += (vi)((a >> (8 * i)) & 255u) * ((vi)(b << (24 - 8 * i)) >> 24);
  return sum;
}
#endif

// Each byte becomes the byte of a table of sixteen, four words, that its lower four bits number.
#if defined(__AVX512VBMI__)
// Of a table of 64 bytes the lower six bits number one: four times the same bytes.
TEGULA_CPU_INLINE vu look_up_bytes(vu bytes, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3) {
  const vu table = {t0, t1, t2, t3, t0, t1, t2, t3, t0, t1, t2, t3, t0, t1, t2, t3};
  vu result;
  asm("vpermb %2, %1, %0" : "=v"(result) : "v"(bytes), "vm"(table));
  return result;
}
#elif TEGULA_CPU_W > 4
TEGULA_CPU_INLINE vu look_up_bytes(vu bytes, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3) {
#if TEGULA_CPU_W == 16
  const vu table = {t0, t1, t2, t3, t0, t1, t2, t3, t0, t1, t2, t3, t0, t1, t2, t3};
#else
  const vu table = {t0, t1, t2, t3, t0, t1, t2, t3};
#endif
  const vu numbers = bytes & 0x0f0f0f0fu;
  vu result;
  asm("vpshufb %2, %1, %0" : "=v"(result) : "v"(table), "vm"(numbers));
  return result;
}
#else
TEGULA_CPU_INLINE vu look_up_bytes(vu bytes, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3) {
  vu result = {};
  for (int byte = 0; byte < 32; byte += 8) {
    const vu number = (bytes >> byte) & 15u, bit = (number & 3u) << 3;
    const vu word =
        (vi)number < 8 ? ((vi)number < 4 ? t0 + vu{} : t1 + vu{}) : ((vi)number < 12 ? t2 + vu{} : t3 + vu{});
    result |= ((word >> bit) & 255u) << byte;
  }
  return result;
}
#endif

TEGULA_CPU_END

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

TEGULA_CPU_END

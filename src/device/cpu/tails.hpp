// The first bytes of a vector of at most 32, to and from memory that has no more of it.
#pragma once
#include "isa.hpp"

TEGULA_CPU_BEGIN

// Two words hold less than 16 bytes. They are moved by pieces that overlap, the largest that fit.
struct Words {
  uint64_t low, high;
};
template <class Piece>
TEGULA_CPU_TEMPLATE uint64_t piece_at(const char* p) {
  Piece x;
  __builtin_memcpy(&x, p, sizeof(Piece));
  return x;
}
template <class Piece>
TEGULA_CPU_TEMPLATE void set_piece(char* p, uint64_t x) {
  const Piece piece = (Piece)x;
  __builtin_memcpy(p, &piece, sizeof(Piece));
}
TEGULA_CPU_INLINE uint64_t load_word(const char* p, long n) {
  if (n >= 8) return piece_at<uint64_t>(p);
  if (n >= 4) return piece_at<uint32_t>(p) | piece_at<uint32_t>(p + n - 4) << 8 * (n - 4);
  if (n >= 2) return piece_at<uint16_t>(p) | piece_at<uint16_t>(p + n - 2) << 8 * (n - 2);
  return n == 1 ? piece_at<uint8_t>(p) : 0;
}
TEGULA_CPU_INLINE void store_word(char* p, uint64_t x, long n) {
  if (n >= 8) return set_piece<uint64_t>(p, x);
  if (n >= 4) return set_piece<uint32_t>(p, x), set_piece<uint32_t>(p + n - 4, x >> 8 * (n - 4));
  if (n >= 2) return set_piece<uint16_t>(p, x), set_piece<uint16_t>(p + n - 2, x >> 8 * (n - 2));
  if (n == 1) set_piece<uint8_t>(p, x);
}
TEGULA_CPU_INLINE Words load_words(const char* p, long n) {
  if (n <= 8) return {load_word(p, n), 0};
  return {piece_at<uint64_t>(p), piece_at<uint64_t>(p + n - 8) >> 8 * (16 - n)};
}
TEGULA_CPU_INLINE void store_words(char* p, Words x, long n) {
  store_word(p, x.low, n);
  if (n > 8) set_piece<uint64_t>(p + n - 8, x.low >> 8 * (n - 8) | x.high << 8 * (16 - n));
}

// The first n bytes, less than all, as a vector whose others are 0.
template <class V>
TEGULA_CPU_TEMPLATE V load_bytes(const V* p, long n) {
  const Words words = load_words((const char*)p, n);
  V x;
  __builtin_memcpy(&x, &words, sizeof(V));
  return x;
}
template <class V>
TEGULA_CPU_TEMPLATE void store_bytes(V* p, V x, long n) {
  Words words = {};
  __builtin_memcpy(&words, &x, sizeof(V));
  store_words((char*)p, words, n);
}

#if defined(TEGULA_CPU_AVX512)
typedef char tail_bytes __attribute__((vector_size(W)));
typedef short tail_halves __attribute__((vector_size(2 * W)));
#if defined(__clang__)  // whose functions take pointers to vectors
typedef tail_bytes tail_byte;
typedef tail_halves tail_half;
#else
typedef char tail_byte;
typedef short tail_half;
#endif
TEGULA_CPU_INLINE unsigned short low_bits(long n) {
  return n >= W ? 0xffff : n <= 0 ? 0 : (unsigned short)((1u << n) - 1);
}
TEGULA_CPU_INLINE vector_u8 load_bytes(const vector_u8* p, long n) {
  return (vector_u8)__builtin_ia32_loaddquqi128_mask((const tail_byte*)p, tail_bytes{}, low_bits(n));
}
TEGULA_CPU_INLINE void store_bytes(vector_u8* p, vector_u8 x, long n) {
  __builtin_ia32_storedquqi128_mask((tail_byte*)p, (tail_bytes)x, low_bits(n));
}
TEGULA_CPU_INLINE vector_u16 load_bytes(const vector_u16* p, long n) {
  return (vector_u16)__builtin_ia32_loaddquhi256_mask((const tail_half*)p, tail_halves{}, low_bits(n / 2));
}
TEGULA_CPU_INLINE void store_bytes(vector_u16* p, vector_u16 x, long n) {
  __builtin_ia32_storedquhi256_mask((tail_half*)p, (tail_halves)x, low_bits(n / 2));
}
#endif

TEGULA_CPU_END

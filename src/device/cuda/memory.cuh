// Single elements of memory, and atomics.
#pragma once
#include "math.cuh"

namespace tg {

template <class T>
TG_DEVICE auto load(const T* p) {
  return value(*p);
}
template <class T, class V>
TG_DEVICE void store(T* p, V x) {
  *p = make<T>(x);
}

template <class To, class From>
TG_DEVICE To bits_as(From x) {
  To to;
  memcpy(&to, &x, sizeof(To));
  return to;
}
template <class T, int bytes = sizeof(T)>
struct Bits {
  using U = uint16_t;
};
template <class T>
struct Bits<T, 1> {
  using U = uint8_t;
};

// Elements that fill 16 bytes, of which the first `count` are there; the others become zeros. `to` is
// aligned.
struct __align__(16) Vector {
  uint32_t words[4];
};
// How many bytes of these 16 there are, which begin at element `first` of a row that ends at `end`. They begin
// at a multiple of 16 bytes.
template <class T>
TG_DEVICE int bytes_of_piece(int64_t first, int64_t end) {
  const int64_t bytes = (end - first) * int64_t(sizeof(T));
  return first < 0 || bytes < 0 ? 0 : bytes < 16 ? int(bytes) : 16;
}
template <class T>
TG_DEVICE void copy_vector(T* to, const T* from, int64_t stride, int count) {
  constexpr int elements = 16 / sizeof(T);
  if (count == elements && stride == 1 && (uint64_t(from) & 15) == 0) {
    *(Vector*)to = *(const Vector*)from;
    return;
  }
#pragma unroll
  for (int i = 0; i < elements; ++i) to[i] = i < count ? from[i * stride] : T{};
}

// The same, begun and not awaited where the elements are contiguous at multiples of four bytes, or are that
// large; `begin_copy` says when they are there. A copy that does not exist as a whole is not begun: it would
// touch what follows the tensor.
template <class T>
TG_DEVICE void bring(T* to, const T* from, int64_t stride, int count) {
  constexpr int elements = 16 / sizeof(T);
  if (stride == 1 && (uint64_t(from) & 15) == 0 && (count == 0 || count == elements)) {
    begin_copy<16>(to, from, count * int(sizeof(T)));
  } else if constexpr (sizeof(T) >= 4) {
#pragma unroll
    for (int i = 0; i < elements; ++i)
      begin_copy<sizeof(T)>(to + i, from + i * stride, i < count ? int(sizeof(T)) : 0);
  } else if (stride == 1 && (uint64_t(from) & 3) == 0 && count % (4 / int(sizeof(T))) == 0) {
    constexpr int each = 4 / sizeof(T);
#pragma unroll
    for (int i = 0; i < elements; i += each) begin_copy<4>(to + i, from + i, i < count ? 4 : 0);
  } else {
#pragma unroll
    for (int i = 0; i < elements; ++i) to[i] = i < count ? from[i * stride] : T{};
  }
}
// A piece of 16 bytes at a multiple of them, or zeros.
template <class T>
TG_DEVICE void bring_piece(T* to, const T* from, bool exists) {
  begin_copy<16>(to, from, exists ? 16 : 0);
}
// One element of four or eight bytes, or zero.
template <class T>
TG_DEVICE void bring_element(T* to, const T* from, bool exists) {
  begin_copy<sizeof(T)>(to, from, exists ? int(sizeof(T)) : 0);
}

// Some elements of a row, as many bytes as one access moves or a multiple of that, as words.
template <int bytes>
struct Unit;  // of other sizes there is no access
template <>
struct Unit<1> {
  using Word = uint8_t;
};
template <>
struct Unit<2> {
  using Word = uint16_t;
};
template <>
struct Unit<4> {
  using Word = uint32_t;
};
template <>
struct Unit<8> {
  using Word = uint2;
};
template <>
struct Unit<16> {
  using Word = uint4;
};
template <class T, int n>
struct Pack {
  static constexpr int bytes = n * sizeof(T), unit = bytes < 16 ? bytes : 16, words = (bytes + 3) / 4;
  static_assert(bytes % unit == 0, "whole accesses");
  using Word = typename Unit<unit>::Word;
  uint32_t word[words];

  TG_DEVICE_MEMBER T get(int i) const {
    if constexpr (sizeof(T) == 8) {
      return bits_as<T>(uint64_t(word[2 * i]) | uint64_t(word[2 * i + 1]) << 32);
    } else if constexpr (sizeof(T) == 4) {
      return bits_as<T>(word[i]);
    } else {
      constexpr int in_word = 4 / sizeof(T), bits = 8 * sizeof(T);
      return bits_as<T>(typename Bits<T>::U(word[i / in_word] >> (i % in_word * bits)));
    }
  }
  // In ascending order.
  TG_DEVICE_MEMBER void set(int i, T x) {
    if constexpr (sizeof(T) == 8) {
      const uint64_t both = bits_as<uint64_t>(x);
      word[2 * i] = uint32_t(both);
      word[2 * i + 1] = uint32_t(both >> 32);
    } else if constexpr (sizeof(T) == 4) {
      word[i] = bits_as<uint32_t>(x);
    } else {
      constexpr int in_word = 4 / sizeof(T), bits = 8 * sizeof(T);
      const uint32_t own = uint32_t(bits_as<typename Bits<T>::U>(x)) << (i % in_word * bits);
      word[i / in_word] = i % in_word == 0 ? own : word[i / in_word] | own;
    }
  }
};
TG_DEVICE void to_words(uint32_t* to, uint8_t x) { to[0] = x; }
TG_DEVICE void to_words(uint32_t* to, uint16_t x) { to[0] = x; }
TG_DEVICE void to_words(uint32_t* to, uint32_t x) { to[0] = x; }
TG_DEVICE void to_words(uint32_t* to, uint2 x) { to[0] = x.x, to[1] = x.y; }
TG_DEVICE void to_words(uint32_t* to, uint4 x) { to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w; }
TG_DEVICE void from_words(uint8_t& x, const uint32_t* from) { x = uint8_t(from[0]); }
TG_DEVICE void from_words(uint16_t& x, const uint32_t* from) { x = uint16_t(from[0]); }
TG_DEVICE void from_words(uint32_t& x, const uint32_t* from) { x = from[0]; }
TG_DEVICE void from_words(uint2& x, const uint32_t* from) { x.x = from[0], x.y = from[1]; }
TG_DEVICE void from_words(uint4& x, const uint32_t* from) {
  x.x = from[0], x.y = from[1], x.z = from[2], x.w = from[3];
}
template <int n, class T>
TG_DEVICE Pack<T, n> load_pack(const T* from) {
  using P = Pack<T, n>;
  P result;
#pragma unroll
  for (int i = 0; i < P::bytes / P::unit; ++i)
    to_words(result.word + i * P::unit / 4, ((const typename P::Word*)from)[i]);
  return result;
}
// Zeros where there is no such piece.
template <int n, class T>
TG_DEVICE Pack<T, n> load_pack_if(const T* from, bool exists) {
  using P = Pack<T, n>;
  P result;
#pragma unroll
  for (int i = 0; i < P::bytes / P::unit; ++i) {
    typename P::Word word{};
    if (exists) word = ((const typename P::Word*)from)[i];
    to_words(result.word + i * P::unit / 4, word);
  }
  return result;
}
template <class T, int n>
TG_DEVICE void store_pack(T* to, const Pack<T, n>& x) {
  using P = Pack<T, n>;
#pragma unroll
  for (int i = 0; i < P::bytes / P::unit; ++i)
    from_words(((typename P::Word*)to)[i], x.word + i * P::unit / 4);
}
// 16 bytes to a tensor, by one instruction.
template <class T, int n>
TG_DEVICE void store_piece(T* to, const Pack<T, n>& x) {
  static_assert(Pack<T, n>::bytes == 16, "a whole piece");
  store_16_bytes(to, x.word);
}
// One of its values.
template <class T, int n>
TG_DEVICE float value_of(const Pack<T, n>& x, int i) {
  return value(x.get(i));
}
// Two neighbours come of one conversion, which the compiler does once for both.
template <int n>
TG_DEVICE float value_of(const Pack<e4m3, n>& x, int i) {
#if __CUDA_ARCH__ >= 900
  uint32_t both;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(uint16_t(x.word[i / 4] >> (i / 2 % 2 * 16))));
  return from_f16(uint16_t(both >> (i % 2 * 16)));
#else
  return value(x.get(i));
#endif
}
// Two values as elements in a word, the first in the low half.
template <class T>
TG_DEVICE uint32_t pair(float low, float high) {
  if constexpr (is_same<T, f16>)
    return pack_f16(low, high);
  else
    return pack_bf16(low, high);
}
// A word of an 8-bit left operand in registers, from two pairs of registers; see wgmma_byte_operand_a().
template <class T>
TG_DEVICE uint32_t operand_word(const float* x) {
#if __CUDA_ARCH__ >= 900
  uint32_t word;
  if constexpr (is_same<T, e4m3>)
    asm("{.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};}"
        : "=r"(word)
        : "f"(x[0]), "f"(x[1]), "f"(x[4]), "f"(x[5]));
  else
    asm("{.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};}"
        : "=r"(word)
        : "f"(x[0]), "f"(x[1]), "f"(x[4]), "f"(x[5]));
  return word;
#else
  const auto bits = [&](int i) { return uint32_t(make<T>(x[i]).bits); };
  return bits(0) | bits(1) << 8 | bits(4) << 16 | bits(5) << 24;
#endif
}
// Values that are rounded two at a time when they are stored, 16 bytes of them at a time.
template <class T, int n>
struct Values {
  float value[n];
  TG_DEVICE_MEMBER void set(int i, float x) { value[i] = x; }
};
template <class T, int n>
TG_DEVICE void store_part(T* to, const Values<T, n>& x, int first) {
  Pack<T, 8> packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) packed.word[i] = pair<T>(x.value[first + 2 * i], x.value[first + 2 * i + 1]);
  store_pack(to, packed);
}
// Whether rows begin at multiples of so many bytes; strides count elements.
template <int bytes, class T, class... Strides>
TG_DEVICE bool is_aligned(const T* tensor, Strides... strides) {
  return ((uint64_t(tensor) | ... | (uint64_t(strides) * sizeof(T))) & (bytes - 1)) == 0;
}

// The place of an element in a swizzled matrix of elements of that many bytes, see TileOrder.
template <int rows, int columns, int bytes = 2>
TG_DEVICE int swizzled(uint32_t row, uint32_t column) {
  constexpr uint32_t piece = 16 / bytes;
  const uint32_t exchange = row / (8 * piece / columns) % (columns / piece);
  return (column / columns * rows + row) * columns + ((column % columns / piece) ^ exchange) * piece +
         column % piece;
}

// ---- atomics: by the instruction where there is one, else by comparing and exchanging
template <class T>
struct Word {
  using U = unsigned int;
};
template <>
struct Word<int64_t> {
  using U = unsigned long long;
};
template <>
struct Word<double> {
  using U = unsigned long long;
};
template <>
struct Word<f16> {
  using U = unsigned short;
};
template <>
struct Word<bf16> {
  using U = unsigned short;
};
template <class Op, class T, class V>
TG_DEVICE void by_exchange(Op, T* p, V x) {
  using U = typename Word<T>::U;
  U* const word = (U*)p;
  U seen = *(volatile U*)word;
  for (;;) {
    const U before = seen;
    seen = atomicCAS(word, before, bits_as<U>(make<T>(Op::of(value(bits_as<T>(before)), x))));
    if (seen == before) return;
  }
}
template <class Op, class T, class V>
TG_DEVICE void combine(Op op, T* p, V x) {
  by_exchange(op, p, decltype(value(*p))(x));
}
#define TG_ATOMIC(Op, function)                                               \
  TG_DEVICE void combine(Op, int32_t* p, int32_t x) { function((int*)p, x); } \
  TG_DEVICE void combine(Op, uint32_t* p, uint32_t x) { function((unsigned int*)p, x); }
#define TG_ATOMIC_WIDE(Op, function, U) \
  TG_DEVICE void combine(Op, int64_t* p, int64_t x) { function((U*)p, (U)x); }
TG_ATOMIC(Add, atomicAdd)
TG_ATOMIC(Min, atomicMin)
TG_ATOMIC(Max, atomicMax)
TG_ATOMIC(Or, atomicOr)
TG_ATOMIC(And, atomicAnd)
TG_ATOMIC_WIDE(Add, atomicAdd, unsigned long long)
TG_ATOMIC_WIDE(Min, atomicMin, long long)
TG_ATOMIC_WIDE(Max, atomicMax, long long)
TG_ATOMIC_WIDE(Or, atomicOr, unsigned long long)
TG_ATOMIC_WIDE(And, atomicAnd, unsigned long long)
#undef TG_ATOMIC
#undef TG_ATOMIC_WIDE
TG_DEVICE void combine(Add, float* p, float x) { atomicAdd(p, x); }
TG_DEVICE void combine(Add, double* p, double x) { atomicAdd(p, x); }

template <class Op, class T, class V>
TG_DEVICE void atomic_update(T* p, V x) {
  combine(Op(), p, decltype(value(*p))(x));
}

// ---- what failed: the first assertion of a launch, and its block
TG_DEVICE void report(unsigned long long* status, unsigned int number) {
  atomicCAS(status, 0ull, (unsigned long long)(blockIdx.x) << 32 | number);
}

// ---- turns: `word`, if there is one, counts the contributions that a window of a tensor has
TG_DEVICE void pass_turn(int* word) {
  if (word == nullptr) return;
  __threadfence();
  atomicAdd(word, 1);
}
// False after seconds, when the promise about the orders was not kept. The status is in the host's memory,
// too far away to be looked at every time.
TG_DEVICE bool keeps_waiting(int round, unsigned long long* status, unsigned int number) {
  const bool failed = round % (1 << 20) == 0 && *(volatile unsigned long long*)status != 0;
  if (round < (1 << 25) && !failed) return true;
  report(status, number);
  return false;
}
TG_DEVICE void wait_turn(int* word, int turn, unsigned long long* status, unsigned int number) {
  if (word == nullptr) return;
  for (int i = 1; *(volatile int*)word < turn && keeps_waiting(i, status, number); ++i) {}
  __threadfence();
}

}  // namespace tg

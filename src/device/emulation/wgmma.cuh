// Products of warp groups in plain C++: an instruction is over when the warp waits for it.
#pragma once
#include "barriers.cuh"
#include "kernel.cuh"
#include "sparse.cuh"

namespace tg {

// Where the byte is that would be there without a swizzle of rows of `row_bytes`.
static inline uint32_t swizzled(uint32_t address, uint32_t row_bytes) {
  return row_bytes < 32 ? address : address ^ (address >> 7 & (row_bytes / 16 - 1)) << 4;
}

// Integers of 8 bits, by their names in PTX; floats have all of them.
using s8 = int8_t;
using u8 = uint8_t;
template <class T>
constexpr bool is_integer_operand = is_same<T, s8> || is_same<T, u8>;
// An operand in shared memory as its descriptor says it; `along` counts rows of A or columns of B.
template <class T, bool transposed>
static inline float operand_element(uint64_t operand, int along, int k) {
  const uint32_t begin = (operand & 0x3fff) << 4, next_block = (operand >> 16 & 0x3fff) << 4,
                 next_rows = (operand >> 32 & 0x3fff) << 4, swizzle = operand >> 62;
  const uint32_t row_bytes = swizzle == 1 ? 128 : swizzle == 2 ? 64 : 32, columns = row_bytes / sizeof(T);
  uint32_t at = begin;
  if (transposed)
    at += along / columns * next_block + k / 8 * next_rows + k % 8 * row_bytes + along % columns * sizeof(T);
  else
    at += along / 8 * next_rows + along % 8 * row_bytes + k * sizeof(T);
  T element;
  memcpy(&element, shared_at(swizzled(at, row_bytes)), sizeof(T));
  if constexpr (is_integer_operand<T>)
    return float(element);
  else if constexpr (is_same<T, tf32>)
    return __uint_as_float(element.bits & 0xffffe000);  // other bits do not count
  else
    return value(element);
}

struct WgmmaLane {
  void* d;  // floats, ints of a product of integers, or words of two f16
  bool in_registers;
  uint32_t registers[4];
  uint64_t a, b;
  int add;
  uint32_t metadata;
};
template <bool of_integers>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<true> {
  using Type = int;
};
template <class Sum>
struct PlainSums {
  Sum* sums;
  Sum operator[](int r) const { return sums[r]; }
  void set(int r, Sum x) { sums[r] = x; }
};
// Words of two sums, which an instruction rounds once.
struct SumsOfF16 {
  uint32_t* words;
  float operator[](int r) const { return from_f16(uint16_t(words[r / 2] >> 16 * (r % 2))); }
  void set(int r, float x) {
    const int shift = 16 * (r % 2);
    words[r / 2] = (words[r / 2] & ~(0xffffu << shift)) | uint32_t(bits_f16(x)) << shift;
  }
};
// Adds the products of the 16 rows of a warp.
template <int n, class T, bool b_transposed, bool in_words = false, int inner>
void add_products(void** lanes, const float (&a)[16][inner]) {
  const auto lane = [&](int i) { return static_cast<const WgmmaLane*>(lanes[i]); };
  using Sum = typename SumOf<is_integer_operand<T>>::Type;
  static float b[inner][n];
  for (int k = 0; k < inner; ++k)
    for (int j = 0; j < n; ++j) b[k][j] = operand_element<T, b_transposed>(lane(0)->b, j, k);
  for (int i = 0; i < 32; ++i) {
    for (int r = 0; r < n / 2; ++r) {
      const int row = i / 4 + r / 2 % 2 * 8, column = i % 4 * 2 + r % 2 + r / 4 * 8;
      const auto form = [&](auto d) {
        Sum sum = lane(i)->add ? d[r] : Sum(0);
        for (int k = 0; k < inner; ++k) sum += Sum(a[row][k] * b[k][column]);
        d.set(r, sum);
      };
      if constexpr (in_words)
        form(SumsOfF16{static_cast<uint32_t*>(lane(i)->d)});
      else
        form(PlainSums<Sum>{static_cast<Sum*>(lane(i)->d)});
    }
  }
}
template <int n, class T, bool a_transposed, bool b_transposed, bool in_words>
void wgmma_lanes(void** lanes) {
  const auto lane = [&](int i) { return static_cast<const WgmmaLane*>(lanes[i]); };
  const int first = int(threadIdx.x) / 32 % 4 * 16;
  constexpr int inner = 32 / sizeof(T);
  static float a[16][inner];
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < inner; ++k) {
      // A word is four bytes along k, or two elements of 16 bits.
      const WgmmaLane& own = *lane(row % 8 * 4 + k % (inner / 2) / (4 / int(sizeof(T))));
      const auto in_register = [&] {
        const uint32_t word = own.registers[row / 8 + k / (inner / 2) * 2];
        if constexpr (is_same<T, e4m3> || is_same<T, e5m2>)
          return value(T{uint8_t(word >> 8 * (k % 4))});
        else if constexpr (sizeof(T) != 2)
          return 0.0f;  // no instruction takes them
        else
          return value(T{uint16_t(word >> 16 * (k % 2))});
      };
      a[row][k] = own.in_registers ? in_register() : operand_element<T, a_transposed>(own.a, first + row, k);
    }
  }
  add_products<n, T, b_transposed, in_words>(lanes, a);
}
// The same of a sparse A, whose values run along k: the metadata say where they stand.
template <int n, class T, bool b_transposed, int selector>
void sparse_wgmma_lanes(void** lanes) {
  const int warp = int(threadIdx.x) / 32 % 4;
  constexpr int inner = 64 / sizeof(T), bytes = inner / 8;  // of metadata
  static float a[16][inner];
  for (auto& row : a)
    for (float& element : row) element = 0;
  for (int i = 0; i < 32; ++i) {
    const WgmmaLane& own = *static_cast<const WgmmaLane*>(lanes[i]);
    for (int quarter = 0; quarter < 8; ++quarter) {  // four bits of metadata
      const MetadataPlace place = metadata_place<sizeof(T)>(32 * warp + i, quarter / 4);
      const int first = (place.byte - selector * bytes) * 8 + quarter % 4 * 4,
                code = own.metadata >> 4 * quarter & 15;
      if (first < 0 || first >= inner) continue;
      const bool known = (code & 3) < code >> 2;  // else what the chip does is not defined
      for (int value = 0; value < 2; ++value)
        a[place.row % 16][first + (code >> 2 * value & 3)] =
            known ? operand_element<T, false>(own.a, place.row, first / 2 + value) : __builtin_nanf("");
    }
  }
  add_products<n, T, b_transposed>(lanes, a);
}
// What each thread has begun: all of a warp the same.
struct Products {
  static constexpr int most = 256;
  struct {
    WgmmaLane lane;
    void (*run)(void** lanes);
    int group;
  } list[most];
  int first, count, group;
};
static Products products[512];
static Products& own_products() { return products[threadIdx.x]; }
static void begin_product(const WgmmaLane& lane, void (*run)(void** lanes)) {
  Products& own = own_products();
  own.list[own.count++ % Products::most] = {lane, run, own.group};
}
template <int n, class T, bool a_transposed, bool b_transposed, bool in_words>
TG_DEVICE void wgmma(void* d, uint64_t a, uint64_t b, int add) {
  begin_product({d, false, {}, a, b, add}, wgmma_lanes<n, T, a_transposed, b_transposed, in_words>);
}
template <int n, class T, bool a_transposed, bool b_transposed, bool in_words>
TG_DEVICE void wgmma(void* d, const uint32_t* a, uint64_t b, int add) {
  begin_product({d, true, {a[0], a[1], a[2], a[3]}, 0, b, add},
                wgmma_lanes<n, T, a_transposed, b_transposed, in_words>);
}
template <int n, class T, bool b_transposed, int selector>
TG_DEVICE void sparse_wgmma(void* d, uint64_t a, uint64_t b, uint32_t metadata, int add) {
  begin_product({d, false, {}, a, b, add, metadata}, sparse_wgmma_lanes<n, T, b_transposed, selector>);
}
TG_DEVICE void wgmma_fence() {}
TG_DEVICE void wgmma_commit() { ++own_products().group; }
template <int pending>
TG_DEVICE void wgmma_wait() {
  Products& own = own_products();
  while (own.first < own.count && own.list[own.first % Products::most].group + pending < own.group) {
    auto& next = own.list[own.first++ % Products::most];
    tegula_threads->together(next.run, &next.lane);
  }
}
template <int count>
TG_DEVICE void pin(float (&)[count]) {}
template <int count>
TG_DEVICE void pin(int (&)[count]) {}
template <int count>
TG_DEVICE void pin(uint32_t (&)[count]) {}

}  // namespace tg

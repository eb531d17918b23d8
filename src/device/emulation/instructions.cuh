// The functions of src/device/cuda/instructions.cuh in plain C++.
#pragma once
#include "builtins.cuh"

#define TG_DEVICE static inline
#define TG_DEVICE_MEMBER inline

namespace tg {

// ---- clocks: they count the events of all threads
static int64_t tegula_events = 0;
TG_DEVICE int64_t device_clock() { return ++tegula_events; }
TG_DEVICE int64_t device_nanoseconds() { return tegula_events * 1000; }

// ---- conversions, to nearest even
TG_DEVICE uint16_t bits_f16(float x) {
  const uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return 0x7fff;
  if (a >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (a < 0x38800000) {
    // Below the smallest normal number: a multiple of 2^-24.
    return uint16_t(sign | uint32_t(__float2int_rn(__uint_as_float(a) * 0x1p24f)));
  }
  return uint16_t(sign | ((a + 0xfff + (a >> 13 & 1)) >> 13) - (112u << 10));
}
TG_DEVICE float from_f16(uint16_t x) {
  const uint32_t sign = uint32_t(x & 0x8000) << 16, a = x & 0x7fff;
  if (a >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (a & 0x3ff) << 13);
  return __uint_as_float(__float_as_uint(__uint_as_float(a << 13) * 0x1p112f) | sign);
}
TG_DEVICE uint16_t bits_bf16(float x) {
  const uint32_t u = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
TG_DEVICE float from_bf16(uint16_t x) { return __uint_as_float(uint32_t(x) << 16); }

TG_DEVICE uint32_t pack_f16(float low, float high) { return bits_f16(low) | uint32_t(bits_f16(high)) << 16; }
TG_DEVICE uint32_t pack_bf16(float low, float high) {
  return bits_bf16(low) | uint32_t(bits_bf16(high)) << 16;
}

TG_DEVICE uint32_t bits_tf32(float x) {
  return x != x ? __float_as_uint(x) : (__float_as_uint(x) + 0x1000) & 0xffffe000;
}

TG_DEVICE void prefetch(const void*) {}
TG_DEVICE void store_16_bytes(void* to, const uint32_t* words) { memcpy(to, words, 16); }
TG_DEVICE void keep_order() {}
template <int product>
TG_DEVICE int nothing(int) {
  return 0;
}
TG_DEVICE uint64_t of_words(uint32_t low, uint32_t high) { return low | uint64_t(high) << 32; }
TG_DEVICE uint32_t masked_xor(uint32_t x, uint32_t mask, uint32_t pattern) { return (x & mask) ^ pattern; }
TG_DEVICE uint32_t masked_or(uint32_t x, uint32_t mask, uint32_t pattern) { return (x & mask) | pattern; }
TG_DEVICE uint32_t upper_halves(uint32_t low, uint32_t high) { return low >> 16 | (high & 0xffff0000u); }
TG_DEVICE uint32_t times_bf16(uint32_t x, uint32_t y) {
  const auto product = [&](int shift) {
    return uint32_t(bits_bf16(from_bf16(uint16_t(x >> shift)) * from_bf16(uint16_t(y >> shift)))) << shift;
  };
  return product(0) | product(16);
}
TG_DEVICE float exp2_approximate(float x) { return exp2f(x); }
TG_DEVICE float reciprocal_approximate(float x) { return 1.0f / x; }

// ---- products of a warp: c [16, 8] += a [16, 16] b [16, 8]
struct MmaLane {
  float* c;
  const uint32_t *a, *b;
};
template <float (*from)(uint16_t)>
void mma_lanes(void** lanes) {
  const auto lane = [&](int i) { return static_cast<const MmaLane*>(lanes[i]); };
  const auto half = [](uint32_t word, int i) { return from(uint16_t(word >> (16 * i))); };
  float a[16][16], b[16][8];
  for (int i = 0; i < 32; ++i) {
    const int row = i / 4, pair = i % 4 * 2;
    for (int h = 0; h < 2; ++h) {
      for (int r = 0; r < 4; ++r) a[row + r % 2 * 8][pair + r / 2 * 8 + h] = half(lane(i)->a[r], h);
      for (int r = 0; r < 2; ++r) b[pair + r * 8 + h][row] = half(lane(i)->b[r], h);
    }
  }
  for (int i = 0; i < 32; ++i) {
    for (int r = 0; r < 4; ++r) {
      const int row = i / 4 + r / 2 * 8, column = i % 4 * 2 + r % 2;
      for (int k = 0; k < 16; ++k) lane(i)->c[r] += a[row][k] * b[k][column];
    }
  }
}
TG_DEVICE void mma_bf16(float* c, const uint32_t* a, const uint32_t* b) {
  MmaLane own{c, a, b};
  tegula_threads->together(mma_lanes<from_bf16>, &own);
}
TG_DEVICE void mma_f16(float* c, const uint32_t* a, const uint32_t* b) {
  MmaLane own{c, a, b};
  tegula_threads->together(mma_lanes<from_f16>, &own);
}
// The same of a sparse a [16, 32], whose values each thread has as those of a dense one of half the columns.
struct SparseMmaLane {
  float* c;
  const uint32_t *a, *b;
  uint32_t metadata;
};
template <float (*from)(uint16_t), int selector>
void mma_sparse_lanes(void** lanes) {
  const auto lane = [&](int i) { return static_cast<const SparseMmaLane*>(lanes[i]); };
  const auto half = [](uint32_t word, int i) { return from(uint16_t(word >> (16 * i))); };
  float values[16][16], a[16][32] = {}, b[32][8];
  for (int i = 0; i < 32; ++i) {
    const int row = i / 4, pair = i % 4 * 2;
    for (int h = 0; h < 2; ++h) {
      for (int r = 0; r < 4; ++r) values[row + r % 2 * 8][pair + r / 2 * 8 + h] = half(lane(i)->a[r], h);
      for (int r = 0; r < 4; ++r) b[pair + r * 8 + h][row] = half(lane(i)->b[r], h);
    }
  }
  for (int row = 0; row < 16; ++row)
    for (int group = 0; group < 8; ++group) {
      const uint32_t word = lane(row % 8 * 4 + 2 * selector + group / 4)->metadata;
      const int code = int(word >> (row / 8 * 16 + group % 4 * 4)) & 15;
      a[row][4 * group + (code & 3)] = values[row][2 * group];
      a[row][4 * group + (code >> 2)] = values[row][2 * group + 1];
    }
  for (int i = 0; i < 32; ++i)
    for (int r = 0; r < 4; ++r)
      for (int k = 0; k < 32; ++k) lane(i)->c[r] += a[i / 4 + r / 2 * 8][k] * b[k][i % 4 * 2 + r % 2];
}
template <int selector>
TG_DEVICE void mma_sparse_bf16(float* c, const uint32_t* a, const uint32_t* b, uint32_t metadata) {
  SparseMmaLane own{c, a, b, metadata};
  tegula_threads->together(mma_sparse_lanes<from_bf16, selector>, &own);
}
template <int selector>
TG_DEVICE void mma_sparse_f16(float* c, const uint32_t* a, const uint32_t* b, uint32_t metadata) {
  SparseMmaLane own{c, a, b, metadata};
  tegula_threads->together(mma_sparse_lanes<from_f16, selector>, &own);
}
// Sums of f16 in words, which are rounded once by an instruction.
TG_DEVICE void mma_f16(uint32_t* c, const uint32_t* a, const uint32_t* b) {
  float sums[4];
  for (int r = 0; r < 4; ++r) sums[r] = from_f16(uint16_t(c[r / 2] >> 16 * (r % 2)));
  mma_f16(sums, a, b);
  for (int r = 0; r < 2; ++r) c[r] = pack_f16(sums[2 * r], sums[2 * r + 1]);
}
// The same with words of one number or of four, c [16, 8] += a [16, 8 · each] b [8 · each, 8].
template <class Sum>
struct WordsLane {
  Sum* c;
  const uint32_t *a, *b;
};
template <int each, class Sum, Sum (*number)(uint32_t, int)>
void mma_words_lanes(void** lanes) {
  const auto lane = [&](int i) { return static_cast<const WordsLane<Sum>*>(lanes[i]); };
  Sum a[16][8 * each], b[8 * each][8];
  for (int i = 0; i < 32; ++i) {
    const int row = i / 4, k = i % 4 * each;
    for (int e = 0; e < each; ++e) {
      for (int r = 0; r < 4; ++r) a[row + r % 2 * 8][k + r / 2 * 4 * each + e] = number(lane(i)->a[r], e);
      for (int r = 0; r < 2; ++r) b[k + r * 4 * each + e][row] = number(lane(i)->b[r], e);
    }
  }
  for (int i = 0; i < 32; ++i) {
    for (int r = 0; r < 4; ++r) {
      const int row = i / 4 + r / 2 * 8, column = i % 4 * 2 + r % 2;
      for (int k = 0; k < 8 * each; ++k) lane(i)->c[r] += a[row][k] * b[k][column];
    }
  }
}
// Bits that tf32 has not do not count.
inline float number_of_tf32(uint32_t word, int) { return __uint_as_float(word & 0xffffe000); }
inline int number_of_s8(uint32_t word, int i) { return int8_t(word >> (8 * i)); }
inline int number_of_u8(uint32_t word, int i) { return uint8_t(word >> (8 * i)); }
TG_DEVICE void mma_tf32(float* c, const uint32_t* a, const uint32_t* b) {
  WordsLane<float> own{c, a, b};
  tegula_threads->together(mma_words_lanes<1, float, number_of_tf32>, &own);
}
TG_DEVICE void mma_s8(int* c, const uint32_t* a, const uint32_t* b) {
  WordsLane<int> own{c, a, b};
  tegula_threads->together(mma_words_lanes<4, int, number_of_s8>, &own);
}
TG_DEVICE void mma_u8(int* c, const uint32_t* a, const uint32_t* b) {
  WordsLane<int> own{c, a, b};
  tegula_threads->together(mma_words_lanes<4, int, number_of_u8>, &own);
}

// ---- four matrices of 8 x 8 elements from shared memory
struct MatrixLane {
  uint32_t* r;
  const void* row;
};
template <bool transposed>
void matrix_lanes(void** lanes) {
  const auto lane = [&](int i) { return static_cast<const MatrixLane*>(lanes[i]); };
  for (int i = 0; i < 32; ++i) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t x[2];
      for (int h = 0; h < 2; ++h) {
        const int along = i % 4 * 2 + h, row = transposed ? along : i / 4,
                  column = transposed ? i / 4 : along;
        x[h] = static_cast<const uint16_t*>(lane(8 * matrix + row)->row)[column];
      }
      lane(i)->r[matrix] = x[0] | uint32_t(x[1]) << 16;
    }
  }
}
TG_DEVICE void load_matrices(uint32_t* r, const void* row) {
  MatrixLane own{r, row};
  tegula_threads->together(matrix_lanes<false>, &own);
}
TG_DEVICE void load_matrices_transposed(uint32_t* r, const void* row) {
  MatrixLane own{r, row};
  tegula_threads->together(matrix_lanes<true>, &own);
}

TG_DEVICE uint32_t shared_address(const void* p) { return uint32_t((const unsigned char*)p - shared_memory); }

// ---- copies that this thread begins and awaits in groups. Until they are awaited, NaN stands there.
struct BegunCopy {
  void* to;
  const void* from;
  int bytes, count;
  unsigned group;
};
struct BegunCopies {
  BegunCopy* all;
  int begun, room;
  unsigned committed;
};
static BegunCopies begun_copies[tegula_most_ctas * 1024];  // of each thread
template <int bytes>
TG_DEVICE void begin_copy(void* to, const void* from, int count) {
  BegunCopies& own = begun_copies[tegula_number];
  if (own.begun == own.room) {
    own.room = own.room == 0 ? 64 : 2 * own.room;
    own.all = (BegunCopy*)realloc(own.all, sizeof(BegunCopy) * size_t(own.room));
  }
  memset(to, 0xff, bytes);
  own.all[own.begun++] = {to, from, bytes, count, own.committed};
}
TG_DEVICE void commit_copies() { ++begun_copies[tegula_number].committed; }
template <int pending>
TG_DEVICE void wait_copies() {
  BegunCopies& own = begun_copies[tegula_number];
  int left = 0;
  for (int i = 0; i < own.begun; ++i) {
    const BegunCopy& copy = own.all[i];
    if (int(own.committed - copy.group) <= pending) {
      own.all[left++] = copy;
      continue;
    }
    memset(copy.to, 0, size_t(copy.bytes));
    if (copy.count > 0) memcpy(copy.to, copy.from, size_t(copy.count));
  }
  own.begun = left;
}

TG_DEVICE uint32_t picked_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = uint64_t(y) << 32 | x;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= uint32_t(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
}

// ---- barriers
TG_DEVICE void block_sync() { __syncthreads(); }
// Of all threads that run, as that of a block.
TG_DEVICE void cluster_sync() { __syncthreads(); }
TG_DEVICE void arrive_in_cluster() {}
TG_DEVICE void wait_for_cluster() { cluster_sync(); }
TG_DEVICE void warp_sync() { tegula_threads->wait(tegula_first_warp_barrier + int(tegula_number) / 32, 32); }
TG_DEVICE void warp_group_sync(int group) { tegula_threads->wait(group + 1, 128); }

}  // namespace tg

// What only sm_90a has: barriers that count bytes, the copy engine, products of warp groups.
#pragma once
#include "copy_engine.cuh"
#include "sparse.cuh"
#include "sums.cuh"

namespace tg {

// ---- parts of a sum, `stride` elements apart, of which every lane of a warp has some
template <class Op, int parts, int stride, class T>
TG_DEVICE T across_parts(const T* p) {
  const int lane = threadIdx.x % 32;
  T sum = p[lane * stride];
#pragma unroll
  for (int part = 32; part < parts; part += 32) sum = Op::of(sum, p[(part + lane) * stride]);
  return across_lanes<Op, 1, 32>(sum);
}

// ---- rows of sums to a tensor, without shared memory
// Elements of a row that the threads of a quad hold in pairs, eight columns apart: x[0], x[1], x[4], x[5], …
// Thread i of the quad gets 16 bytes of the row. Of 16 bits each, these are its columns from 8 i on; of 32
// bits, four columns from 8 (i % 2) + 4 (i / 2) on.
template <class T>
TG_DEVICE uint4 quad_words(const float* x, int i) {
  const bool high = i & 2, odd = i & 1;
  if constexpr (sizeof(T) == 4) {
    const float a = shuffled(odd ? x[0] : x[4], 1), b = shuffled(odd ? x[1] : x[5], 1);
    const float v[4] = {odd ? a : x[0], odd ? b : x[1], odd ? x[4] : a, odd ? x[5] : b};
    return {bits_as<uint32_t>(v[0]), bits_as<uint32_t>(v[1]), bits_as<uint32_t>(v[2]),
            bits_as<uint32_t>(v[3])};
  } else {
    uint32_t w[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) w[r] = pair<T>(x[4 * r], x[4 * r + 1]);
    const uint32_t a = shuffled(high ? w[0] : w[2], 2), b = shuffled(high ? w[1] : w[3], 2);
    const uint32_t u[4] = {high ? a : w[0], high ? b : w[1], high ? w[2] : a, high ? w[3] : b};
    const uint32_t c = shuffled(odd ? u[0] : u[1], 1), d = shuffled(odd ? u[2] : u[3], 1);
    return {odd ? c : u[0], odd ? u[1] : c, odd ? d : u[2], odd ? u[3] : d};
  }
}
template <class T>
TG_DEVICE void store_quad(T* to, const float* x, int i, bool exists) {
  const uint4 words = quad_words<T>(x, i);
  if (exists) store_passing((uint4*)to, words);
}
// Where those that a thread has follow one another.
template <class T>
TG_DEVICE void store_own(T* to, const float* x, bool exists) {
  if (exists)
    store_passing((uint4*)to,
                  {pair<T>(x[0], x[1]), pair<T>(x[4], x[5]), pair<T>(x[8], x[9]), pair<T>(x[12], x[13])});
}
template <class T>
TG_DEVICE void add_quad(T* to, const float* x, int i, bool exists) {
  const uint4 words = quad_words<T>(x, i);
  const uint32_t all[4] = {words.x, words.y, words.z, words.w};
  if (exists) add_words<4>(to, all);
}

// Elements of a row, each atomically.
template <class T, int n>
TG_DEVICE void add_pack(T* to, const Pack<T, n>& x) {
  static_assert(Pack<T, n>::bytes % 4 == 0, "whole words");
  constexpr int words = Pack<T, n>::words < 4 ? Pack<T, n>::words : 4;
#pragma unroll
  for (int i = 0; i < Pack<T, n>::words / words; ++i)
    add_words<words>(to + i * words * 4 / sizeof(T), x.word + i * words);
}

// ---- products of warp groups
template <int count>
TG_DEVICE void add_to(float (&sum)[count], const float (&product)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) sum[i] += product[i];
}
template <int until, int count>
TG_DEVICE float total(const float (&r)[count]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < until; ++i) sum += r[i];
  return sum;
}
// Keeps what follows after a sum that is not negative, so that the condition never holds: the compiler lifts
// a bare wait over arithmetic, but not over a side effect.
TG_DEVICE void hold(float sum) {
  if (sum < -1.0f) barrier_arrive(0);
}

// The place of an operand [rows, …] in shared memory whose blocks are `columns` columns wide: see TileOrder.
template <int columns, int bytes>
TG_DEVICE constexpr uint32_t high_word_of_operand() {
  constexpr uint32_t row = columns * bytes, next_rows = 8 * row, swizzle = row == 128 ? 1 : row == 64 ? 2 : 3;
  return next_rows >> 4 | swizzle << 30;
}
template <int rows, int columns, int bytes = 2>
TG_DEVICE uint64_t operand(const void* tile) {
  constexpr uint32_t next_block = rows * columns * bytes;
  const uint64_t low = (shared_address(tile) & 0x3ffff) >> 4 | (next_block >> 4) << 16;
  return low | uint64_t(high_word_of_operand<columns, bytes>()) << 32;
}
// The same for one product of many in a step, at a place that is found with `nothing`: only a low word is
// held.
template <int columns, int bytes>
struct OperandApart {
  uint32_t low;

  TG_DEVICE_MEMBER OperandApart operator+(uint32_t step) const { return {low + step}; }
  TG_DEVICE_MEMBER operator uint64_t() const { return of_words(low, high_word_of_operand<columns, bytes>()); }
};
template <int rows, int columns, int bytes = 2>
TG_DEVICE OperandApart<columns, bytes> operand_apart(const void* tile) {
  return {uint32_t(operand<rows, columns, bytes>(tile))};
}
// How far, in units of the operand, row and column are from its start; both at pieces that it can begin at.
template <int rows, int columns, int bytes = 2>
TG_DEVICE constexpr uint32_t operand_step(int row, int column) {
  return ((column / columns * rows + row) * columns + column % columns) * bytes / 16;
}
// The operand in the slots of a ring, moved on from slot to slot: in a step nothing of it is computed but a
// sum, on which no product waits. Only its low word changes, since addresses are within that; both words are
// put together behind the compiler's back, which would add all 64 bits, and ask for the block's place again.
template <int rows, int columns, int bytes, int slot_bytes>
struct OperandOfSlots {
  uint32_t first, here;

  __device__ __forceinline__ OperandOfSlots(const void* slots, uint32_t slot)
      : first(uniform(int(operand<rows, columns, bytes>(slots)))), here(first + slot * (slot_bytes / 16)) {}
  __device__ __forceinline__ uint64_t at(uint32_t step) const {
    return of_words(here + step, high_word_of_operand<columns, bytes>());
  }
  template <class Cursor>
  __device__ __forceinline__ void advance(const Cursor& at) {
    here = at.slot == 0 ? first : here + slot_bytes / 16;
  }
};
// An index that chooses rows of a tile: one that chooses none reads some rows.
TG_DEVICE int inside(int index, int extent) { return min(max(index, 0), extent - 1); }

}  // namespace tg

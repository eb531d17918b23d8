// Pieces of rows that begin at any element: read by the aligned words around them, stored by the aligned
// words that neighbouring lanes have together.
#pragma once
#include "memory.cuh"

namespace tg {

// `to` becomes the bytes from `first` on, less than a unit of them, of words that are longer by a unit.
template <int words, int unit, bool in_words>
TG_DEVICE void shift_words(const uint32_t* from, int first, uint32_t* to) {
  static_assert(unit == 8 || unit == 16, "words are exchanged by halves");
  uint32_t half[words + 2];
#pragma unroll
  for (int i = 0; i < words + 2; ++i) {
    if constexpr (unit == 16)
      half[i] = (first & 8) != 0 ? from[i + 2] : from[i];
    else
      half[i] = from[i];
  }
  uint32_t word[words + 1];
#pragma unroll
  for (int i = 0; i < words + 1; ++i) word[i] = (first & 4) != 0 ? half[i + 1] : half[i];
#pragma unroll
  for (int i = 0; i < words; ++i) {
    if constexpr (in_words)
      to[i] = uint32_t((uint64_t(word[i + 1]) << 32 | word[i]) >> ((first & 3) * 8));
    else
      to[i] = word[i];
  }
}

// All ones but for the highest bits, so many of 32 or more.
TG_DEVICE uint32_t ones_without(int bits) {
#ifdef __CUDA_ARCH__
  return __funnelshift_rc(~0u, 0, bits < 0 ? 0 : bits);
#else
  return bits <= 0 ? ~0u : bits >= 32 ? 0 : ~0u >> bits;
#endif
}
// The first bytes of the words stay, the others become zeros. No branch waits for the words.
template <int words>
TG_DEVICE void keep_bytes(uint32_t* word, int bytes) {
#pragma unroll
  for (int i = 0; i < words; ++i) word[i] &= ones_without(32 * (i + 1) - 8 * bytes);
}

// As far as it matters to a few threads.
TG_DEVICE int left_of_row(int64_t end, int64_t at) {
  const int64_t left = end - at;
  return left < 0 ? 0 : left < 4096 ? int(left) : 4096;
}

// `units` aligned words around so many elements, the first of which is `first` bytes behind the begin of a
// word. A word that has an element is in memory that may be read: allocations are multiples of 16 bytes. No
// branch is in the way of the next loads.
template <class P, int units, class T>
TG_DEVICE void load_words(uint32_t* words, const T* from, int first, int count) {
#ifdef __CUDA_ARCH__
  const auto* at = (const typename P::Word*)((const char*)from - first);
  const int bytes = count > 0 ? first + count * int(sizeof(T)) : 0;
#pragma unroll
  for (int i = 0; i < units; ++i) {
    typename P::Word word{};
    if (i * P::unit < bytes) word = at[i];
    to_words(words + i * P::unit / 4, word);
  }
#else
  memset(words, 0xff, units * P::unit);  // whatever follows
  memcpy((char*)words + first, from, size_t(count) * sizeof(T));
#endif
}

// Elements of a row of which so many are left. Those that do not exist become zeros if that is wanted.
template <int n, bool zeros, class T>
TG_DEVICE Pack<T, n> load_anywhere(const T* from, int left) {
  using P = Pack<T, n>;
  const int count = left < 0 ? 0 : left < n ? left : n, first = int(uint64_t(from) & (P::unit - 1));
  uint32_t words[P::words + P::unit / 4];
  load_words<P, P::bytes / P::unit + 1>(words, from, first, count);
  P result;
  shift_words<P::words, P::unit, (sizeof(T) < 4)>(words, first, result.word);
  if constexpr (zeros) keep_bytes<P::words>(result.word, count * int(sizeof(T)));
  return result;
}

// The same of a row that begins where a word does, of which a piece takes whole words.
template <int n, bool zeros, class T>
TG_DEVICE Pack<T, n> load_to_end(const T* from, int left) {
  using P = Pack<T, n>;
  const int count = left < 0 ? 0 : left < n ? left : n;
  P result;
  load_words<P, P::bytes / P::unit>(result.word, from, 0, count);
  if constexpr (zeros) keep_bytes<P::words>(result.word, count * int(sizeof(T)));
  return result;
}

// ---- rows that follow each other in memory, on their way to a slot of shared memory. The slot begins with a
// number: how many bytes of the first piece are a neighbour's.
constexpr int bytes_before_run = 16;
template <class T>
TG_DEVICE T* run_in(T* slot) {
  return (T*)((char*)slot + bytes_before_run + *(const int*)slot);
}
TG_DEVICE void begin_run(void* slot, int first, int thread) {
  if (thread == 0) *(int*)slot = first;
}
// So many elements of a run that has `elements` at most; the others become zeros. Aligned pieces of 16 bytes
// come of it, begun and not awaited, of which each that has an element is in memory that may be read.
template <int elements, int threads, class T>
TG_DEVICE void bring_run(T* slot, const T* from, int count, int thread) {
  const int first = int(uint64_t(from) & 15);
  begin_run(slot, first, thread);
#ifdef __CUDA_ARCH__
  constexpr int pieces = (elements * int(sizeof(T)) + 30) / 16, rounds = (pieces + threads - 1) / threads;
  const int bytes = count > 0 ? first + count * int(sizeof(T)) : 0;
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const int at = 16 * (thread + i * threads), left = bytes - at;
    if (at >= 16 * pieces) break;
    begin_copy<16>((char*)slot + bytes_before_run + at, (const char*)from - first + at,
                   left < 0    ? 0
                   : left < 16 ? left
                               : 16);
  }
#else
  T* const to = (T*)((char*)slot + bytes_before_run + first);
  for (int i = thread; i < elements; i += threads)
    begin_copy<int(sizeof(T))>(to + i, from + i, i < count ? int(sizeof(T)) : 0);
#endif
}
// Rows of which so many are left, and so many elements of each; by elements, awaited, where they do not
// follow each other.
template <int rows, int columns, int threads, class T>
TG_DEVICE void bring_rows(T* slot, const T* from, int64_t row_stride, int64_t stride, int64_t rows_left,
                          int64_t columns_left, int thread) {
  const int own_rows = rows_left < 0 ? 0 : rows_left < rows ? int(rows_left) : rows;
  const int own_columns = columns_left < 0 ? 0 : columns_left < columns ? int(columns_left) : columns;
  if (stride == 1 && (rows == 1 || row_stride == columns))
    return bring_run<rows * columns, threads>(slot, from, own_rows * own_columns, thread);
  begin_run(slot, 0, thread);
  T* const to = (T*)((char*)slot + bytes_before_run);
#pragma unroll 1
  for (int i = thread; i < rows * columns; i += threads) {
    const int row = i / columns, column = i % columns;
    to[i] = row < own_rows && column < own_columns ? from[row * row_stride + column * stride] : T{};
  }
}
// Elements of a tile in shared memory, wherever they begin, behind which as many bytes may be read as a piece
// has.
template <int n, class T>
TG_DEVICE Pack<T, n> load_from_run(const T* from, bool exists) {
  using P = Pack<T, n>;
  P result{};
#ifdef __CUDA_ARCH__
  constexpr int units = P::bytes / P::unit + 1;
  const int first = int(uint64_t(from) & (P::unit - 1));
  const auto* at = (const typename P::Word*)((const char*)from - first);
  uint32_t words[P::words + P::unit / 4];
#pragma unroll
  for (int i = 0; i < units; ++i) {
    typename P::Word word{};
    if (exists) word = at[i];
    to_words(words + i * P::unit / 4, word);
  }
  shift_words<P::words, P::unit, (sizeof(T) < 4)>(words, first, result.word);
#else
  if (exists) memcpy(result.word, from, size_t(P::bytes));
#endif
  return result;
}

// A row that came as a run goes to the beginning of its slot: threads lift its pieces, meet, and lay them
// down where whole pieces begin.
template <class T>
TG_DEVICE T* row_in(T* slot) {
  return (T*)((char*)slot + bytes_before_run);
}
template <int elements, int threads, class T, int n, int rounds>
TG_DEVICE void lift_row(const T* slot, Pack<T, n> (&own)[rounds], int thread) {
  using P = Pack<T, n>;
  const int first = *(const int*)slot;  // of all pieces
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const int at = n * (thread + i * threads);
#ifdef __CUDA_ARCH__
    const auto* const from = (const typename P::Word*)((const char*)slot + bytes_before_run) + at / n;
    uint32_t words[P::words + P::unit / 4] = {};
    if (at < elements) {
      to_words(words, from[0]);
      to_words(words + P::unit / 4, from[1]);
    }
    shift_words<P::words, P::unit, (sizeof(T) < 4)>(words, first, own[i].word);
#else
    if (at < elements)
      memcpy(own[i].word, (const char*)slot + bytes_before_run + first + P::bytes * (at / n), P::bytes);
#endif
  }
}
template <int elements, int threads, class T, int n, int rounds>
TG_DEVICE void lay_row(T* slot, const Pack<T, n> (&own)[rounds], int thread) {
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const int at = n * (thread + i * threads);
    if (at < elements) store_pack(row_in(slot) + at, own[i]);
  }
}

template <class Word>
TG_DEVICE void store_word(char* to, Word x) {
  *(Word*)to = x;
}
// The first bytes of words, less than 16, to an aligned place.
template <int least>
TG_DEVICE void store_first(char* to, const uint32_t* word, int bytes) {
  const uint32_t low = (bytes & 4) != 0 ? word[1] : word[0], high = (bytes & 4) != 0 ? word[3] : word[2];
  const uint32_t last = (bytes & 8) != 0 ? high : low;
  if ((bytes & 8) != 0) store_word(to, uint2{word[0], word[1]});
  if ((bytes & 4) != 0) store_word(to + (bytes & 8), (bytes & 8) != 0 ? word[2] : word[0]);
  if constexpr (least <= 2)
    if ((bytes & 2) != 0) store_word(to + (bytes & 12), uint16_t(last));
  if constexpr (least == 1)
    if ((bytes & 1) != 0) store_word(to + (bytes & 14), uint8_t(last >> ((bytes & 2) * 8)));
}
// The first bytes of words, less than 16, to a place behind which an aligned one begins.
template <int least>
TG_DEVICE void store_last(char* to, const uint32_t* word, int bytes) {
  const auto at = [&](uint32_t low, uint32_t high) {
    return uint32_t((uint64_t(high) << 32 | low) >> ((bytes & 3) * 8));
  };
  const bool skips = (bytes & 4) != 0;
  if constexpr (least == 1)
    if ((bytes & 1) != 0) store_word(to, uint8_t(word[0]));
  if constexpr (least <= 2)
    if ((bytes & 2) != 0) store_word(to + (bytes & 1), uint16_t(word[0] >> ((bytes & 1) * 8)));
  if ((bytes & 4) != 0) store_word(to + (bytes & 3), at(word[0], word[1]));
  if ((bytes & 8) != 0)
    store_word(to + (bytes & 7), uint2{at(skips ? word[1] : word[0], skips ? word[2] : word[1]),
                                       at(skips ? word[2] : word[1], skips ? word[3] : word[2])});
}

// Stores elements of a row that ends after so many of them. So many lanes of a warp, all of which take part,
// have pieces that follow each other.
template <int lanes, class T, int n>
TG_DEVICE void store_anywhere(T* to, const Pack<T, n>& x, int left) {
  using P = Pack<T, n>;
  constexpr int unit = P::unit, units = P::bytes / unit, each = int(sizeof(T));
  const int head = -int(uint64_t(to)) & (unit - 1), lane = int(threadIdx.x) % lanes;
  const int most = lane == lanes - 1 ? n : 2 * n, all = (left < 0 ? 0 : left < most ? left : most) * each;
  uint32_t words[P::words + unit / 4];
#pragma unroll
  for (int i = 0; i < P::words; ++i) words[i] = x.word[i];
#pragma unroll
  for (int i = 0; i < unit / 4; ++i)
    words[P::words + i] = lanes > 1 ? __shfl_sync(~0u, x.word[i], int(threadIdx.x) + 1 & 31) : 0;
  P aligned;
  shift_words<P::words, unit, (sizeof(T) < 4)>(words, head, aligned.word);
  char* const from = (char*)to + head;
#pragma unroll
  for (int i = 0; i < units; ++i) {
    const int own = all - head - i * unit;
    if (own >= unit) {
      typename P::Word word;
      from_words(word, aligned.word + i * unit / 4);
      store_word(from + i * unit, word);
    } else if (own > 0) {
      uint32_t ends[4] = {};
#pragma unroll
      for (int k = 0; k < unit / 4; ++k) ends[k] = aligned.word[i * unit / 4 + k];
      store_first<each>(from + i * unit, ends, own);
    }
  }
  if (lane != 0 || all <= 0) return;
  if (all >= head) {
    uint32_t begins[4] = {};
#pragma unroll
    for (int k = 0; k < unit / 4; ++k) begins[k] = x.word[k];
    store_last<each>((char*)to, begins, head);
  } else {
#pragma unroll
    for (int e = 0; e < unit / each; ++e)
      if (e * each < all) to[e] = x.get(e);
  }
}

}  // namespace tg

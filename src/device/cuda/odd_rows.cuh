// Pieces of rows that begin at any element: read by aligned words around them, stored by the aligned words that
// neighbouring lanes have together.
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

// The first bytes of the words stay, the others become zeros.
template <int words>
TG_DEVICE void keep_bytes(uint32_t* word, int bytes) {
#pragma unroll
  for (int i = 0; i < words; ++i) {
    const int own = bytes - 4 * i;
    if (own < 4) word[i] = own <= 0 ? 0 : word[i] & ((1u << (own * 8)) - 1);
  }
}

// As far as it matters to a few threads.
TG_DEVICE int left_of_row(int64_t end, int64_t at) {
  const int64_t left = end - at;
  return left < 0 ? 0 : left < 4096 ? int(left) : 4096;
}

// Elements of a row of which so many exist; the others become zeros. Words that are not in the tensor, which
// has its elements from `begin` to `end`, are not touched.
template <int n, class T>
TG_DEVICE Pack<T, n> load_anywhere(const T* from, int left, const T* begin, const T* end) {
  using P = Pack<T, n>;
  constexpr int unit = P::unit, units = P::bytes / unit;
  const int count = left < 0 ? 0 : left < n ? left : n, first = int(uint64_t(from) & (unit - 1));
  const int bytes = count > 0 ? first + count * int(sizeof(T)) : 0;
  const uint64_t at = uint64_t(from) - uint64_t(first), past = at + uint64_t((bytes + unit - 1) & -unit);
  const bool in_words = bytes == 0 || (at >= uint64_t(begin) && past <= uint64_t(end));
  uint32_t words[P::words + unit / 4];
#pragma unroll
  for (int i = 0; i <= units; ++i) {
    typename P::Word word{};
    if (in_words && i * unit < bytes) word = ((const typename P::Word*)at)[i];
    to_words(words + i * unit / 4, word);
  }
  P result;
  shift_words<P::words, unit, (sizeof(T) < 4)>(words, first, result.word);
  if (!in_words) {
#pragma unroll
    for (int i = 0; i < n; ++i) result.set(i, i < count ? from[i] : T{});
  } else if (count < n) {
    keep_bytes<P::words>(result.word, count * int(sizeof(T)));
  }
  return result;
}

// As bring(), but where elements begin at no multiple of 16 bytes they are awaited, and come by words all the
// same.
template <class T>
TG_DEVICE void bring_anywhere(T* to, const T* from, int64_t stride, int count, const T* begin, const T* end) {
  constexpr int elements = 16 / sizeof(T);
  if (stride == 1 && (uint64_t(from) & 15) == 0 && (count == 0 || count == elements))
    begin_copy<16>(to, from, count * int(sizeof(T)));
  else if (stride == 1 && sizeof(T) <= 4)
    store_pack(to, load_anywhere<elements>(from, count, begin, end));
  else
    bring(to, from, stride, count);
}

// Stores elements of a row that ends after so many of them. So many lanes of a warp, all of which take part,
// have pieces that follow each other.
template <int lanes, class T, int n>
TG_DEVICE void store_anywhere(T* to, const Pack<T, n>& x, int left) {
  using P = Pack<T, n>;
  constexpr int unit = P::unit, units = P::bytes / unit, each = int(sizeof(T));
  const int head = -int(uint64_t(to)) & (unit - 1), lane = int(threadIdx.x) % lanes;
  const int count = left < 0 ? 0 : left < n ? left : n;
  const bool is_last = lane == lanes - 1 || count < n;
  const int following = is_last ? 0 : left < 2 * n ? left - n : n, bytes = (count + following) * each;
  uint32_t words[P::words + unit / 4];
#pragma unroll
  for (int i = 0; i < P::words; ++i) words[i] = x.word[i];
#pragma unroll
  for (int i = 0; i < unit / 4; ++i)
    words[P::words + i] = lanes > 1 ? __shfl_sync(~0u, x.word[i], int(threadIdx.x) + 1 & 31) : 0;
  P aligned;
  shift_words<P::words, unit, (sizeof(T) < 4)>(words, head, aligned.word);
  T* const from = (T*)(uint64_t(to) + uint64_t(head));
#pragma unroll
  for (int i = 0; i < units; ++i) {
    const int own = bytes - head - i * unit;
    if (own >= unit) {
      from_words(((typename P::Word*)from)[i], aligned.word + i * unit / 4);
    } else {
#pragma unroll
      for (int e = 0; e < unit / each; ++e)
        if (e * each < own) from[i * (unit / each) + e] = aligned.get(i * (unit / each) + e);
    }
  }
  if (lane == 0) {
#pragma unroll
    for (int e = 0; e < unit / each; ++e)
      if (e * each < head && e < count) to[e] = x.get(e);
  }
}

}  // namespace tg

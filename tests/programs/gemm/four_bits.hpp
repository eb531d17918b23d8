// What the programs with weights of 4 bits share: where values stand in packed words, and how they are
// packed.
#pragma once
#include "tests/programs/gemm/products.hpp"

namespace programs {

// The place of element j of a step's row among the packed ones: thread t of a quad has columns 2t, 2t + 1, 2t
// + 8, 2t + 9 of every 16, as registers of the instruction.
template <class I>
auto packed_place(const I& j, int k) {
  return (j % 8 / 2) * (k / 4) + j / 16 * 4 + j % 16 / 8 * 2 + j % 2;
}

// Values 0 … 15 [n, k], eight in a u32, low bits first: in their order, or in that of registers for steps of
// `step`.
inline Data packed_words(const Data& q, int step = 0) {
  const auto n = q.size(0), k = q.size(1);
  const Data words = Data::zeros({n, k / 8}, u32);
  each(n, k, [&](int i, int j) {
    const int at = step > 0 ? j / step * step + packed_place(j % step, step) : j;
    words.at<unsigned>(i, at / 8) |= (static_cast<unsigned>(q.at<std::int32_t>(i, j)) & 15U) << (at % 8 * 4);
  });
  return words;
}
// Two in a byte, the first in the low half.
inline Data packed_bytes(const Data& q) {
  const Data bytes = Data::zeros({q.size(0), q.size(1) / 2}, u8);
  each(q.size(0), q.size(1), [&](int i, int j) {
    bytes.at<std::uint8_t>(i, j / 2) |= static_cast<std::uint8_t>(q.at<std::int32_t>(i, j) << (j % 2 * 4));
  });
  return bytes;
}

}  // namespace programs

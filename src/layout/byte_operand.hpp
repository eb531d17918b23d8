// The layout of a product's left operand of 8 bits in registers.
#pragma once
#include "layout/fragments.hpp"

namespace tegula::layout {

// The 8-bit operand A [m, k] of wgmma m64nNk32 in registers. Of 16 neighbours along k a thread of a quad has
// four, which are a word of the instruction. Registers are numbered as those of an accumulator whose columns
// they could be: two elements, the same two eight rows below, then the other two of each word. So the
// accumulator's column 8 u + 2 q + e, of thread q, takes the place of element 4 q + 2 u + e without a move.
Layout wgmma_byte_operand_a(std::int64_t m, std::int64_t k, const Division& groups);

// The first of the two pairs of registers that make word `w` of that operand, as an expression of C++ where
// `w` is one; the second pair is four registers further.
inline constexpr const char* byte_word_register = "w / 2 * 8 + w % 2 * 2";

}  // namespace tegula::layout

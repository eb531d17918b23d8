// Neighbouring bits of a word as a number, and how such a number becomes a float.
//
// Conversions of integers have half the rate of additions of floats, and so have shifts. Where a float has
// bits of the word among those of its mantissa, below the exponent at which each is worth what it is worth in
// the number, only what that exponent adds has to be subtracted. The mantissa has 23 bits: what lies higher
// is moved first, all of a word by as much, so that one shift serves several numbers.
#pragma once
#include <optional>
#include <string>

#include "ir/expr.hpp"

namespace tegula::codegen {

struct WordBits {
  ir::Expr word;  // of 32 bits
  int first = 0, count = 0;
};

// Of (word >> first) & mask, (word & mask) >> first, and what remains of a word that is shifted.
std::optional<WordBits> word_bits(const ir::Expr& e);

// Whether they become a float faster by way of its mantissa: bytes are converted where they are.
inline bool suit_mantissa(const WordBits& bits) { return bits.count < 8; }

}  // namespace tegula::codegen

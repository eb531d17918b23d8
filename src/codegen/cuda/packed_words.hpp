// Registers of floats as words of small floats.
#pragma once
#include <cstdint>
#include <string>

#include "passes/cuda/fragment_forms.hpp"

namespace tegula::codegen {

// Elements of a word of a packed fragment or of a product's left operand.
inline std::int64_t elements_of_word(DType type) { return 32 / type.bits(); }

// A loop over so many of the sixteenths of the words `to`, which are made of registers `from`.
std::string loop_over_words(DType type, const std::string& from, const std::string& to,
                            std::int64_t registers, int first, int last);

}  // namespace tegula::codegen

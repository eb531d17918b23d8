// Kernels that the library's own build has printed and compiled, so that they need no compiler and no
// first-call delay. Their texts are what they are found by: any program whose text is the same may use them.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "device/cpu/call.hpp"
#include "runtime/machine/cpu_features.hpp"

namespace tegula::builtin {

struct Compiled {
  std::string_view key;  // of the text, see key_of
  Isa isa;
  std::span<TegulaBlock* const> blocks;  // of each grid
  std::span<TegulaApply* const> apply;   // of each accumulation in order
};

// All of them; the table is printed by the build (generate.cpp), or empty (none.cpp).
std::span<const Compiled> table();

std::string key_of(std::string_view text);
// Null if there is none.
const Compiled* find(std::string_view text, Isa isa);

}  // namespace tegula::builtin

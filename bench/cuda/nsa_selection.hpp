// Which blocks each token selects in the measurements of selected attention: always the first, its own and
// the one before; the others drawn among those in between.
#pragma once
#include <cstdint>

#include "tegula/tensor.hpp"

namespace tegula::bench {

struct SelectionShape {
  std::int64_t tokens = 0, kv_heads = 4;
  int block = 64, entries = 16;
};

// Drawn for each token alone, or from scores that drift from token to token (autoregressive of order one, so
// slowly that neighbours share 82 % of the drawn blocks).
enum class Drift : std::uint8_t { independent, slow };

struct NsaSelection {
  Tensor indices;       // i32 [1, tokens, kv heads, entries]; -1 where there are no more blocks
  double overlap = 0;   // share of a token's drawn blocks that the next token draws too
  double union_of = 0;  // blocks that 4 neighbours select together
  double pairs = 0;     // keys that all tokens see, of one query head of each key head
  double nominal = 0;   // the same without the mask: all keys of the selected blocks
};

NsaSelection make_selection(const SelectionShape& shape, Drift drift);

}  // namespace tegula::bench

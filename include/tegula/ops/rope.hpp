// Rotary position embedding.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// Which features are rotated together: j and j + r/2 of the first r, or 2j and 2j + 1.
enum class RopePairing { halves, neighbours };

struct Rope {
  TensorRef x = {};                  // [tokens, heads, d] or [batch, tokens, heads, d], f32, f16 or bf16
  TensorRef cosine = {}, sine = {};  // [length, r/2], f32: of the angles of each position
  std::optional<TensorRef> positions = {};  // [tokens] or [batch, tokens], i32; default: 0, 1, 2, …
  RopePairing pairing = RopePairing::halves;
  bool inverse = false;               // rotate back; this is also the gradient
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// Rotates the first r features of every head by the angles of the token's position and copies the others; the
// result has x's shape and dtype and is computed in f32. A position outside the tables is a ProgramError.
Tensor rope(const TensorRef& x, const TensorRef& cosine, const TensorRef& sine, Rope options = {});

}  // namespace tegula::ops
TEGULA_API_END

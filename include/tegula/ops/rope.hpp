// Rotary position embedding.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// Which features are rotated together: j and j + r/2 of the first r, or 2j and 2j + 1.
enum class RopePairing { halves, neighbours };

struct Rope {
  TensorRef x = {};                  // [tokens, heads, d] or [batch, tokens, heads, d], f32, f16 or bf16
  TensorRef cosine = {}, sine = {};  // [length, r/2], f32: of the angles of every position
  std::optional<TensorRef> positions = {};  // [tokens] or [batch, tokens], i32; 0, 1, 2, … unless given
  RopePairing pairing = RopePairing::halves;
  bool inverse = false;               // rotates back, which is also the gradient
  std::optional<TensorRef> out = {};  // written instead of a new tensor
  Target target = Target::automatic();
};

// The first r features of every head turned by the angles of the token's position, the others as they are; of
// x's shape and dtype, computed in f32. A position outside of the tables is an error of the call.
Tensor rope(const TensorRef& x, const TensorRef& cosine, const TensorRef& sine, Rope options = {});

}  // namespace tegula::ops
TEGULA_API_END

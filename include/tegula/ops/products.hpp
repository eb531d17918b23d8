// What operators that multiply matrices share: activations and tiles.
#pragma once
#include "tegula/compiler.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// gelu is x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))); silu is x / (1 + exp(−x)).
enum class Activation { none, relu, gelu, silu };

// How f32 operands are multiplied: as they are; on tensor cores with 11 bits, where a sum errs by at most 2^-9 of
// the sum of its products' magnitudes; or there as sums of two such numbers each, by three products, where it
// errs by at most 2^-19 of that, besides the errors of f32 sums.
enum class Precision { ieee, tf32, tf32x3 };

// Extents of a tile in elements, at most 4096, and the number of parts of k, at most 32, whose sums different
// blocks form and one adds in order (split-K; every run gives equal bits). 0 leaves the choice to the plan.
struct GemmTiles {
  int m = 0, n = 0, k = 0, splits = 0;
};

}  // namespace tegula::ops
TEGULA_API_END

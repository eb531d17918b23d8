// Options that operators with matrix products share: activations, precision and tiles.
#pragma once
#include "tegula/compiler.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// gelu is x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))); silu is x / (1 + exp(−x)).
enum class Activation { none, relu, gelu, silu };

// How f32 operands are multiplied: in full precision; rounded to 11 bits on tensor cores (tf32), where the
// error is at most 2^-9 of the sum of the magnitudes of the products; or as sums of two such numbers each,
// with three products (tf32x3), where it is at most 2^-19 of that sum, in addition to the errors of f32 sums.
enum class Precision { ieee, tf32, tf32x3 };

// Extents of a tile in elements, at most 4096, and the number of splits of k, at most 32: the sum over each
// split is computed by its own block, and the sums are added in order (split-K, bitwise reproducible). 0
// leaves the choice to the plan.
struct GemmTiles {
  int m = 0, n = 0, k = 0, splits = 0;
};

}  // namespace tegula::ops
TEGULA_API_END

// Non-local means as attention: a pixel becomes the mean of all pixels, weighted by how alike the patches
// around them are (Buades, Coll and Morel, 2005).
//
// With p the 3 × 3 patch of a pixel, less 1/2, the weight exp(−|p − p'|² / h²) is up to a factor of the query
// exp((2 p·p' − |p'|²) / h²): the softmax of a product of q = [2p, 1] and k = [p', −|p'|²] with scale 1/h².
// h = 0.8 σ √d for patches of d values with noise of deviation σ.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula::image {

inline constexpr std::int64_t tile = 8;             // pixels of a side
inline constexpr std::int64_t block = tile * tile;  // tokens of a tile

// Pixels in the order of tiles: f32 [tokens, channels]. The picture is extended to whole tiles by mirroring,
// from any size of at least one tile.
Tensor to_tokens(const Tensor& picture);
// Back to a picture of that height and width.
Tensor from_tokens(const Tensor& tokens, std::int64_t height, std::int64_t width);

// What attention needs to denoise a picture; all f32 [1, tokens, 1, features].
struct NonLocalMeans {
  Tensor q, k, v;
  // The same with one more feature, for the selection of blocks by their means: alone, mean patches miss how
  // alike two blocks are inside. With m the mean patch of a block and s² = mean |p|² − |m|² the spread around
  // it, the feature 2s of a query and s of a key make the product of means 2 (m·m' + s s') − |m'|² − s'²,
  // which is largest where both agree.
  Tensor selection_q, selection_k;
  float scale = 1;
};

NonLocalMeans non_local_means(const Tensor& noisy, double sigma);

}  // namespace tegula::image

#include "ops/convolution/plan.hpp"

#include <vector>

#include "ops/pieces/plan.hpp"
#include "ops/pieces/product_plan.hpp"
#include "ops/products/tile_types.hpp"

namespace tegula::ops {

namespace {

std::int64_t tiles_of(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }

// Whether a tile may have several images: their pixels are neighbours in a tensor then.
bool may_join_images(const ConvKernel& t, const ConvShape& s) {
  const bool has_depth = s.in[0] > 1 || s.taps[0] > 1 || s.padding[0] > 0;
  return t.windows && !has_depth;
}

// How the pixels of a tile are divided into images, rows and columns, so that tiles cover the fewest pixels.
// A warp group stores whole images.
void divide_pixels(ConvKernel& t, const ConvShape::Three& made, std::int64_t batch, bool joins_images) {
  const int count = t.h * t.w, usual = t.w;
  const auto covered = [&](int images, int h, int w) {
    return tiles_of(batch, images) * images * tiles_of(made[1], h) * h * tiles_of(made[2], w) * w;
  };
  t.h = count / usual;
  for (const int w : {8, 16, 32, 4})
    for (int h = count / w; h >= 1; h /= 2) {
      const int images = count / w / h;
      if (w > count || ((images > 1 || w < 8) && !joins_images) || (images > 1 && h * w > warp_group_rows))
        continue;
      if (covered(images, h, w) < covered(t.images, t.h, t.w)) t.images = images, t.h = h, t.w = w;
    }
}

// The extent of tiles that cover the fewest elements, the largest of these.
int fitting(std::int64_t extent, std::initializer_list<int> extents) {
  int best = *extents.begin();
  for (const int tile : extents)
    if (tiles_of(extent, tile) * tile <= tiles_of(extent, best) * best) best = tile;
  return best;
}

// Windows on a CPU have 7 or 8 times a power of two rows and columns: few, so that images of all sizes share
// kernels, and such that the usual ones are covered without a rest.
constexpr std::array window_extents{4, 7, 8, 14, 16, 28, 32, 56, 64};
constexpr int most_pixels = 512, least_pixels = 48;
using ConvCandidates = Candidates<ConvKernel, 4 * window_extents.size() * window_extents.size()>;

// Windows of about an image at most, and of several if one is small.
void add_windows(ConvCandidates& candidates, ConvKernel t, const ConvShape::Three& made, bool joins_images) {
  const auto fits = [](int tile, std::int64_t extent) {
    return tile < 2 * extent || tile == window_extents.front();
  };
  for (const int h : window_extents)
    for (const int w : window_extents) {
      if (!fits(h, made[1]) || !fits(w, made[2]) || h * w > most_pixels) continue;
      t.h = h, t.w = w, t.images = 1;
      const bool is_image = h >= made[1] && w >= made[2];
      while (joins_images && is_image && t.pixels() < least_pixels) t.images *= 2;
      candidates.add(t);
    }
}

ConvCandidates candidates_on_cpu(ConvKernel t, const ConvShape& s, const ConvShape::Three& made) {
  const Depths depths = depths_of(t, s);
  const int widest = fitting(depths.made, {32, 64, 128, 256});
  ConvCandidates candidates;
  for (t.n = widest; t.n >= 32 && t.n >= widest / 2; t.n /= 2) {
    if (t.windows && made[1] > 1) {
      add_windows(candidates, t, made, may_join_images(t, s));
      continue;
    }
    for (const int pixels : {64, 128, 256}) {
      t.h = 1, t.w = pixels;
      candidates.add(t);
    }
  }
  return candidates;
}

// The relative time of the products of a call. Sums of weights go over the pixels of tiles, which threads do
// not change.
double estimate_on_cpu(const ConvKernel& t, const ConvShape& s, const ConvShape::Three& made, int threads) {
  const std::int64_t planes = t.images > 1 ? tiles_of(s.batch, t.images) : s.batch * made[0];
  const std::int64_t tiles = t.windows ? planes * tiles_of(made[1], t.h) * tiles_of(made[2], t.w)
                                       : tiles_of(s.batch * s.pixels(made), t.pixels());
  const Depths depths = depths_of(t, s);
  if (t.pass == ConvPass::weight_gradient)
    return estimate(
        {.batch = s.pixels(s.taps) * s.groups, .m = depths.summed, .n = depths.made, .k = tiles * t.pixels()},
        {t.k, t.n, t.pixels(), 1});
  return estimate({.batch = tiles * s.groups,
                   .m = t.pixels(),
                   .n = depths.made,
                   .k = s.pixels(s.taps) * tiles_of(depths.summed, t.k) * t.k,
                   .threads = threads},
                  {t.pixels(), t.n, t.k, 1});
}

}  // namespace

Depths depths_of(const ConvKernel& t, const ConvShape& s) {
  const std::int64_t channels = s.channels / s.groups, features = s.features / s.groups;
  return t.pass == ConvPass::forward ? Depths{channels, features} : Depths{features, channels};
}

ConvShape::Three planned_pixels(const ConvShape& s, const ConvKernel& t) {
  if (t.pass != ConvPass::input_gradient) return s.out;
  ConvShape::Three made = s.in;
  if (t.phases) made[1] /= s.stride_h(), made[2] /= s.stride;
  return made;
}

std::vector<int> merged_groups(const ConvShape& s, DType type, bool on_gpu) {
  const std::int64_t most = on_gpu ? 64 : 32;  // channels of a step along k, or of the smallest tile
  const std::int64_t piece = bytes_of_piece / type.bytes();
  const std::int64_t own = s.channels / s.groups, made = s.features / s.groups;
  std::vector<int> result{1};
  if (s.groups == 1 || own == 0 || made == 0) return result;
  if (on_gpu && multiplied_type(type, true).bits() != 16) return result;
  if (s.channels % piece != 0 || s.features % piece != 0) return result;
  // Threads would bring groups that begin off 16 bytes, which takes longer than any zeros.
  const bool is_off = on_gpu && (own % piece != 0 || made % piece != 0);
  for (std::int64_t count = 2; count <= s.groups; count *= 2) {
    const bool fits = count * std::max(own, made) <= most || (is_off && result.size() == 1);
    if (fits && s.groups % count == 0 && count * own % piece == 0 && count * made % piece == 0)
      result.push_back(static_cast<int>(count));
  }
  return result;
}

bool are_products(const ConvShape& s, DType type) {
  return (s.channels > s.groups || s.features > s.groups) && merged_groups(s, type, true).size() > 1;
}

void merge_groups(ConvKernel& t, ConvShape& s, bool on_gpu) {
  // The more the better: tiles of pixels arrive by whole lines, and weights of zeros cost little beside them.
  t.merged = best_of(merged_groups(s, t.type, on_gpu), [](int count) { return 1.0 / count; });
  s.groups /= t.merged;
}

void plan_on_gpu(ConvKernel& t, const ConvShape& s, const ConvShape::Three& made) {
  if (made[1] == 1) t.h = 1, t.w = 64;
  const bool back = t.pass == ConvPass::input_gradient;
  const std::int64_t seen = back ? s.features : s.channels;
  const auto piece = static_cast<std::int64_t>(bytes_of_piece / t.type.bytes());
  t.whole_pieces = seen % piece == 0 && seen / s.groups % piece == 0;
  const auto small = [](std::int64_t n) { return static_cast<int>(n <= 16 ? n : 0); };
  t.taps_d = small(s.taps[0]), t.taps_h = small(s.taps[1]), t.taps_w = small(s.taps[2]);
  t.stride = small(s.stride), t.stride_h = small(s.stride_h());
  const bool is_16_bits = t.compute.bits() == 16;
  t.k = is_16_bits ? 64 : 32;
  if (!is_16_bits) return;
  const std::int64_t columns = depths_of(t, s).made, summed = depths_of(t, s).summed;
  // Over one dimension, tiles have twice the pixels instead of twice the columns.
  t.n = columns > 64 ? 128 : 64;
  if (columns % 256 == 0 && made[1] > 1) t.n = 256;
  // Of few channels a step along k has them all, and zeros up to whole instructions. Tiles end with a group.
  const auto few = [](std::int64_t count) { return count <= 16 ? 16 : count <= 32 ? 32 : 64; };
  if (t.pass != ConvPass::weight_gradient) t.k = few(summed);
  if (columns <= 64 && t.pass != ConvPass::weight_gradient) t.n = few(columns);
  if (t.pass == ConvPass::weight_gradient) {
    if (s.features / s.groups > 64) t.k = 128;
  } else {
    t.w = made[1] > 1 ? (made[2] > 8 ? 16 : 8) : made[2] > 128 ? 256 : 128;
  }
  if (made[1] > 1) divide_pixels(t, made, s.batch, may_join_images(t, s));
}

void plan_on_cpu(ConvKernel& t, const ConvShape& s, const ConvShape::Three& made, int threads) {
  // Half an instruction of pairs of bf16 would multiply zeros with fewer than 32 channels.
  const std::int64_t summed = depths_of(t, s).summed;
  t.k = t.pass == ConvPass::weight_gradient ? fitting(summed, {32, 64, 128})
        : t.compute.bits() == 16            ? fitting(summed, {32, 64, 128, 256})
                                            : fitting(summed, {16, 32, 64, 128, 256});
  t = best_of(candidates_on_cpu(t, s, made),
              [&](const ConvKernel& candidate) { return estimate_on_cpu(candidate, s, made, threads); });
}

}  // namespace tegula::ops

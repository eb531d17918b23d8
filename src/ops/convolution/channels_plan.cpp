#include <numeric>

#include "ops/convolution/plan.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

// Of a group: more are faster as a product.
constexpr std::int64_t most_channels = 8;
constexpr int most_columns = 64, most_taps = 16;
// Of a tile. Sums of a CPU stay in its first cache.
constexpr int most_pixels_on_gpu = 64, most_pixels_on_cpu = 32;
constexpr std::int64_t most_bytes = 96 << 10;

// Columns of a tile: groups, or parts of one, in whole vectors where there are such.
int columns_of(std::int64_t made) {
  const std::int64_t vectors = std::lcm(made, std::int64_t{8});
  for (const std::int64_t unit : {vectors, made})
    if (unit <= most_columns) return static_cast<int>(most_columns / unit * unit);
  for (int n = most_columns; n >= 8; --n)
    if (made % n == 0) return n;
  return 0;
}

std::int64_t bytes_of(const ConvChannelsKernel& t) {
  return (std::int64_t{t.seen_h()} * t.seen_w() * t.read() +
          std::int64_t{t.taps_h} * t.taps_w * t.own * t.n) *
         t.type.bytes();
}

// Products, and pixels that tiles read, of which one takes as long as a few products.
double estimate_channels(const ConvChannelsKernel& t, const ConvShape::Three& made) {
  constexpr double of_read = 2;
  if (bytes_of(t) > most_bytes) return never;
  const auto tiles = [](std::int64_t extent, int tile) {
    return static_cast<double>((extent + tile - 1) / tile);
  };
  const double summed = static_cast<double>(t.h) * t.w * t.n * t.taps_h * t.taps_w * t.own,
               read = static_cast<double>(t.seen_h()) * t.seen_w() * t.read();
  return tiles(made[1], t.h) * tiles(made[2], t.w) * (summed + of_read * read);
}

}  // namespace

std::optional<ConvChannelsKernel> plan_channels(const ConvShape& s, DType type, ConvPass pass,
                                                const ConvShape::Three& made, bool on_gpu) {
  const bool back = pass == ConvPass::input_gradient;
  const std::int64_t channels = s.channels / s.groups, features = s.features / s.groups,
                     own = back ? features : channels, of_group = back ? channels : features;
  const bool has_few_taps = s.taps[0] <= most_taps && s.taps[1] <= most_taps && s.taps[2] <= most_taps;
  if (s.groups == 1 || own == 0 || own > most_channels || of_group == 0 || !has_few_taps) return {};
  // Each term of a strided gradient has conditions, of which compilers of a CPU take minutes for many.
  constexpr std::int64_t most_with_conditions = 2;
  if (back && s.stride > 1 && own > most_with_conditions) return {};
  ConvChannelsKernel t{.type = type, .pass = pass};
  t.own = static_cast<int>(own), t.n = columns_of(of_group);
  if (t.n == 0 || of_group > (1 << 20)) return {};
  t.made = static_cast<int>(of_group);
  t.taps_d = static_cast<int>(s.taps[0]), t.taps_h = static_cast<int>(s.taps[1]);
  t.taps_w = static_cast<int>(s.taps[2]), t.dilation = static_cast<int>(s.dilation);
  t.stride = static_cast<int>(s.stride), t.stride_h = static_cast<int>(s.stride_h());
  const std::int64_t piece = bytes_of_piece / type.bytes();
  t.whole_pieces = on_gpu && s.channels % piece == 0 && s.features % piece == 0;
  const int most_pixels = on_gpu ? most_pixels_on_gpu : most_pixels_on_cpu;
  // Tiles that images cut are stored by elements: of a GPU some fit the usual multiples of 7.
  Candidates<ConvChannelsKernel, 32> candidates;
  for (const int h : {1, 2, 4, 7, 8})
    for (const int w : {4, 7, 8, 14, 16, 32}) {
      if (h * w > most_pixels || h * w < 8 || (made[1] == 1) != (h == 1)) continue;
      if (!on_gpu && (h == 7 || w % 7 == 0)) continue;
      t.h = h, t.w = w;
      candidates.add(t);
    }
  const ConvChannelsKernel best = best_of(
      candidates, [&](const ConvChannelsKernel& candidate) { return estimate_channels(candidate, made); });
  if (bytes_of(best) > most_bytes) return {};
  return best;
}

}  // namespace tegula::ops

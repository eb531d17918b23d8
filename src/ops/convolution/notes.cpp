#include "ops/convolution/notes.hpp"

#include <fmt/format.h>

namespace tegula::ops {

namespace {

// Pixels of tiles, for one of the result.
double covered_pixels(const ConvKernel& t, const ConvShape& s, const ConvShape::Three& made) {
  const auto covered = [](std::int64_t extent, int tile) {
    return static_cast<double>((extent + tile - 1) / tile * tile) / static_cast<double>(extent);
  };
  return covered(s.batch, t.images) * covered(made[1], t.h) * covered(made[2], t.w);
}

void note_extents(Launch& launch, const ConvKernel& t, const ConvShape& s, const ConvShape::Three& made) {
  constexpr double most_covered = 1.5;
  constexpr std::int64_t few_features = 64;
  if (s.batch == 0 || s.pixels(made) == 0) return;
  if (t.windows && covered_pixels(t, s, made) > most_covered)
    launch.note([&] {
      return fmt::format("plan: tiles of {} x {} pixels cover images of {} x {} with {:.1f} times as many",
                         t.h, t.w, made[1], made[2], covered_pixels(t, s, made));
    });
  const std::int64_t own =
      (t.pass == ConvPass::input_gradient ? s.channels : s.features) / s.groups * t.merged;
  if (t.compute.bits() == 16 && own <= few_features)
    launch.note([&] {
      return fmt::format(
          "plan: every tap brings its pixels again, for {} features; products of fewer than 128 wait for "
          "them",
          own);
    });
}

}  // namespace

void note_products(Launch& launch, const ConvKernel& t, const ConvShape& s, const ConvShape::Three& made) {
  if (!t.windows)
    launch.note([] {
      return std::string(
          "plan: threads look for the pixels of strides that do not divide the extents of images; pad them");
    });
  if (t.grouped && !t.whole_pieces)
    launch.note([] {
      return std::string(
          "plan: threads bring groups of channels that do not begin at multiples of 16 bytes; give numbers "
          "of "
          "channels and features that are multiples of 8");
    });
  if (t.pad_from || t.pad_to)
    launch.note([] {
      return std::string(
          "plan: pixels that do not begin at multiples of 16 bytes are copied first, or written last");
    });
  note_extents(launch, t, s, made);
}

void note_products_on_cpu(Launch& launch, const ConvKernel& t, const ConvShape& s) {
  constexpr double most_zeros = 0.5;
  if (!t.windows)
    launch.note([] {
      return std::string(
          "plan: the pixels of strides that do not divide the extents of images are looked for one by one, "
          "at every tap; pad the images");
    });
  const std::int64_t summed = depths_of(t, s).summed, made = depths_of(t, s).made;
  const auto padded = [](std::int64_t extent, int tile) { return (extent + tile - 1) / tile * tile; };
  const std::int64_t multiplied = padded(summed, t.k) * padded(made, t.n);
  if (static_cast<double>(summed * made) <= most_zeros * static_cast<double>(multiplied))
    launch.note([&] {
      return fmt::format(
          "plan: products sum {} at a time to {} columns for {} and {} of a group, with zeros for those that "
          "do not exist",
          t.k, t.n, summed, made);
    });
}

}  // namespace tegula::ops

#include "ops/convolution/pixels.hpp"

#include <algorithm>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

ConvPixels::ConvPixels(const ConvKernel& instance) : c(instance) {
  if (c.whole_pieces) wide.multiple_of(bytes_of_piece / c.type.bytes());
}

// With zeros behind the channels. Pixels of a row of an image, or of one of its phases, lie side by side.
Tensor ConvPixels::padded_pixels() const {
  constexpr int pixels = 64, most_columns = 64;
  const int parts = c.phases_of_from() ? c.stride : 1, columns = std::min(c.k, most_columns);
  Expr own = given.extent(4) / parts, count = given.extent(3);
  Tensor copied = workspace(
      "padded", {given.extent(0), given.extent(1), given.extent(2), count, channels * parts}, c.type);
  Expr across = ceildiv(channels, columns);
  grid(across * ceildiv(count, pixels), given.extent(1) * given.extent(2), given.extent(0),
       [&](Index x, Index y, Index z) {
         Expr first = x / across * pixels, column = x % across * columns;
         const Tensor from_row = given.slice(z, y / given.extent(2), y % given.extent(2)),
                      to_row = copied.slice(z, y / given.extent(2), y % given.extent(2));
         for (int part = 0; part < parts; ++part) {
           Fragment tile = load(from_row.slice(all, range(own * part, own * (part + 1))).at(first, column),
                                {pixels, columns});
           copy(tile, to_row.at(first, channels * part + column));
         }
       });
  return copied;
}

Extents ConvPixels::phases(const std::string& of, const Expr& last) const {
  const auto dim = [&](const char* name) { return Dim((of + name).c_str()); };
  return {dim("_planes"), dim("_rows"), stride_h, dim("_columns"), last};
}

Tensor ConvPixels::of_group(const Tensor& tensor, const Expr& group) const {
  if (!c.grouped) return tensor;
  Expr own = tensor.extent(tensor.rank() - 1) / groups;
  const Range range_of_group = range(group * own, (group + 1) * own);
  if (tensor.rank() == 2) return tensor.slice(all, range_of_group);
  return tensor.slice(all, all, all, all, range_of_group);
}

Expr ConvPixels::first_of_group(const Tensor& tensor, const Expr& group, int unit) const {
  // Merged groups are multiples of a piece.
  if (c.merged > 1) unit = static_cast<int>(bytes_of_piece) / c.type.bytes();
  return group * (tensor.extent(tensor.rank() - 1) / groups / unit) * unit;
}

// Where a tap of the place looks, before a division by the stride; a gradient of the input looks the other
// way.
Expr ConvPixels::met(const Expr& place, const Expr& tap, const Expr& padding) const {
  return c.pass == ConvPass::input_gradient ? place + padding - tap * dilation
                                            : place + tap * dilation - padding;
}

void ConvPixels::window(Shared& tile, const Pixel& first, const Tap& tap, const Expr& group,
                        const Expr& channel) const {
  if (c.phases_of_from()) return window_of_phase(tile, first, tap, group, channel);
  const int columns = static_cast<int>(tile.extent(1));
  // A gradient meets only taps of its phase, which divide without a remainder.
  const auto at = [&](const Expr& place, const Expr& of_tap, const Expr& padding, const Expr& step) {
    Expr place_met = met(place, of_tap, padding);
    return c.phases ? floordiv(place_met, step) : place_met;
  };
  const bool is_whole = c.whole && c.grouped;
  const Tensor own = is_whole ? from : of_group(from, group);
  Expr begin = is_whole ? first_of_group(from, group, columns) + channel : channel;
  Expr h = at(first.h, tap.h, padding_h, stride_h), w = at(first.w, tap.w, padding_w, stride);
  if (c.images > 1)
    copy(own.slice(all, 0).at(first.image, h, w, begin), tile.reshape({c.images, c.h, c.w, columns}));
  else
    copy(own.slice(first.image, at(first.d, tap.d, padding_d, stride)).at(h, w, begin),
         tile.reshape({c.h, c.w, columns}));
}

// A tap sees one phase of the input: neighbouring pixels of the result see neighbours in it.
void ConvPixels::window_of_phase(Shared& tile, const Pixel& first, const Tap& tap, const Expr& group,
                                 const Expr& channel) const {
  Expr d = first.d * stride + tap.d * dilation - padding_d, h = tap.h * dilation - padding_h,
       w = tap.w * dilation - padding_w;
  Expr plane = select(d >= 0 && d < depth, first.image * depth + d, -1), own = channels / groups;
  // Counted in pieces, of which all ranges of channels consist if pixels do: boxes begin at whole ones.
  const int piece = c.whole_pieces ? static_cast<int>(bytes_of_piece) / c.type.bytes() : 1;
  Expr phase = floormod(w, stride);
  Expr begin = c.pad_from ? phase * ceildiv(given_channels, c.k) * c.k
                          : (phase * (channels / piece) + group * (own / piece)) * piece;
  Expr row = first.h + floordiv(h, stride_h), column = first.w + floordiv(w, stride);
  if (c.images > 1) {
    const Tensor of_phase = c.whole
                                ? from.slice(all, all, floormod(h, stride_h))
                                : from.slice(all, all, floormod(h, stride_h), all, range(begin, begin + own));
    return copy(of_phase.at(first.image, row, column, c.whole ? begin + channel : channel),
                tile.reshape({c.images, c.h, c.w, static_cast<int>(tile.extent(1))}));
  }
  Shared pixels = tile.reshape({c.h, c.w, static_cast<int>(tile.extent(1))});
  if (c.whole)
    copy(from.slice(plane, all, floormod(h, stride_h)).at(row, column, begin + channel), pixels);
  else
    copy(from.slice(plane, all, floormod(h, stride_h), all, range(begin, begin + own))
             .at(row, column, channel),
         pixels);
}

Expr ConvPixels::row_of(const Pixel& p, const Tap& tap) const {
  const bool back = c.pass == ConvPass::input_gradient;
  Expr d = met(back ? p.d : p.d * stride, tap.d, padding_d),
       h = met(back ? p.h : p.h * stride, tap.h, padding_h),
       w = met(back ? p.w : p.w * stride, tap.w, padding_w);
  Expr exists = d >= 0 && h >= 0 && w >= 0;
  if (!back) {
    Expr is_inside = d < depth && h < height && w < width;
    return select(exists && is_inside, ((p.image * depth + d) * height + h) * width + w, -1);
  }
  // Only every stride-th pixel has been looked at.
  Expr met_d = d / stride, met_h = h / stride, met_w = w / stride;
  Expr is_met = met_d * stride == d && met_h * stride == h && met_w * stride == w;
  Expr is_inside = met_d < depth && met_h < height && met_w < width;
  return select(exists && is_met && is_inside, ((p.image * depth + met_d) * height + met_h) * width + met_w,
                -1);
}

void ConvPixels::rows(Shared& tile, const OfRow& pixel, const Expr& exists_before, const Tap& tap,
                      const Expr& group, const Expr& channel) const {
  const auto row = [&](Index i) {
    const Pixel own = pixel(i);
    return select(own.image < exists_before, row_of(own, tap), -1);
  };
  gather(of_group(from, group).slice(all, range(channel, channel + static_cast<int>(tile.extent(1)))), row,
         tile);
}

}  // namespace tegula::ops

// Tiles of pixels of the tensor that taps read.
#pragma once
#include "ops/convolution/kernel.hpp"

namespace tegula::ops {

struct ConvPixels {
  const ConvKernel& c;
  lang::Dim wide{c.phases_of_from() ? "wide" : "channels"};  // the last of `from`
  lang::Expr batch = extent("batch"), depth = extent("depth"), height = extent("height"),
             width = extent("width");
  lang::Expr stride = known_or("stride", c.stride), dilation = number("dilation"),
             padding_d = number("padding_d"), padding_h = number("padding_h"),
             padding_w = number("padding_w"), groups = number("groups");
  lang::Expr stride_h = c.phases ? known_or("stride_h", c.stride_h) : stride;
  lang::Tensor given = c.phases_of_from() ? lang::input("from", phases("from", wide), c.type)
                       : c.windows        ? lang::input("from", {batch, depth, height, width, wide}, c.type)
                                          : lang::input("from", {lang::Dim("pixels"), wide}, c.type);

  // Of pixels as tiles read them.
  lang::Expr given_channels = c.phases_of_from() ? wide / stride : lang::Expr(wide);
  lang::Expr channels = padded_channels(given_channels);
  lang::Tensor from = c.pad_from ? padded_pixels() : given;

  explicit ConvPixels(const ConvKernel& instance);

  lang::Expr extent(const char* name) const {
    return c.windows && !c.phases_of_from() ? lang::Expr(lang::Dim(name)) : number(name);
  }
  // The extents of a tensor with phases, the last of which is given.
  lang::Extents phases(const std::string& of, const lang::Expr& last) const;
  static lang::Expr known_or(const char* name, int known) {
    return known > 0 ? lang::Expr(lang::Operand(known)) : number(name);
  }
  // Whole steps along k, where pixels are copied first.
  lang::Expr padded_channels(const lang::Expr& own) const {
    return c.pad_from ? ceildiv(own, c.k) * c.k : own;
  }
  static lang::Expr extent_of_taps(const char* name, int known) {
    return known > 0 ? lang::Expr(lang::Operand(known)) : lang::Expr(lang::Dim(name));
  }
  static lang::Expr number(const char* name) { return lang::scalar(name, i32); }
  // The channels of a group of a tensor whose last dim they are.
  lang::Tensor of_group(const lang::Tensor& tensor, const lang::Expr& group) const;

  // The first channel of a group of a tensor, where groups are multiples of the unit: boxes of tiles end with
  // them, and need no tensor that ends there. What follows merged groups is multiplied by zeros, or dropped.
  lang::Expr first_of_group(const lang::Tensor& tensor, const lang::Expr& group, int unit) const;

  // A tap, and a pixel of the tensor that taps do not look into: its image and place.
  struct Tap {
    lang::Expr d, h, w;
  };
  struct Pixel {
    lang::Expr image, d, h, w;
  };
  // With stride 1, or phases: the pixels that a tap of a tile meets, [h · w, columns] from the channel on.
  void window(lang::Shared& tile, const Pixel& first, const Tap& tap, const lang::Expr& group,
              const lang::Expr& channel) const;
  // Loads rows for the pixels that a function returns; pixels after the last, and positions that the tap does
  // not reach, are zeros.
  using OfRow = std::function<Pixel(const lang::Index& row)>;
  void rows(lang::Shared& tile, const OfRow& pixel, const lang::Expr& exists_before, const Tap& tap,
            const lang::Expr& group, const lang::Expr& channel) const;

 private:
  lang::Tensor padded_pixels() const;
  void window_of_phase(lang::Shared& tile, const Pixel& first, const Tap& tap, const lang::Expr& group,
                       const lang::Expr& channel) const;
  lang::Expr met(const lang::Expr& place, const lang::Expr& tap, const lang::Expr& padding) const;
  lang::Expr row_of(const Pixel& pixel, const Tap& tap) const;
};

}  // namespace tegula::ops

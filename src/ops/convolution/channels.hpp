// The tile program of convolutions whose groups have few channels, down to one: threads multiply and add, a
// vector of neighbouring channels each. Products of tiles would sum zeros, or see channels of other groups.
#pragma once
#include "ops/convolution/kernel.hpp"

namespace tegula::ops {

struct ConvChannelsKernel {
  DType type = f32;
  ConvPass pass = ConvPass::forward;  // or input_gradient
  std::optional<DType> bias = {};
  int own = 1, made = 1;      // channels of a group: those that are summed, those that result
  bool whole_pieces = false;  // groups of a tile begin at multiples of 16 bytes, in either tensor
  int h = 4, w = 8, n = 64;   // pixels of a tile, and its channels of the result
  int taps_d = 1, taps_h = 1, taps_w = 1, stride_h = 1, stride = 1, dilation = 1;
  // Channels of a tile that are read.
  int read() const { return n > made ? n / made * own : own; }
  bool back() const { return pass == ConvPass::input_gradient; }
  // The pixels that so many of a tile look at along a dimension.
  int seen(int pixels, int taps, int step) const {
    const int reach = (taps - 1) * dilation;
    return back() ? (pixels - 1 + reach) / step + 2 : (pixels - 1) * step + reach + 1;
  }
  int seen_h() const {
    return back() && stride_h == 1 ? h + (taps_h - 1) * dilation : seen(h, taps_h, stride_h);
  }
  int seen_w() const { return back() && stride == 1 ? w + (taps_w - 1) * dilation : seen(w, taps_w, stride); }
  auto fields() const {
    return std::tuple(type, pass, labelled("bias", bias), joined("group", own, made),
                      labelled("pieces", whole_pieces), joined("p", h, w), labelled("t", n),
                      labelled("depth", taps_d), joined("taps", taps_h, taps_w),
                      joined("stride", stride_h, stride), labelled("dilation", dilation));
  }
};

// Arguments: `from`, the tensor that taps look into, and `to`, [batch, depth, height, width, channels];
// weight [features, taps_d, taps_h, taps_w, channels of a group]; bias; padding_d, padding_h and padding_w.
lang::Kernel conv_channels_program(const ConvChannelsKernel& instance);

}  // namespace tegula::ops

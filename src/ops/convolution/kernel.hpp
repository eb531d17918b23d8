// The tile programs of convolutions over three dimensions: the product of pixels with the weights of each
// tap, which is also the gradient of the input, and the gradient of the weights. For convolutions over fewer
// dimensions, the first ones have extent 1.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

enum class ConvPass { forward, input_gradient, weight_gradient };
template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> choice_names<ConvPass>{
    "forward", "dx", "dweight"};

struct ConvKernel {
  DType type = f32, compute = f32, out = f32;
  ConvPass pass = ConvPass::forward;
  std::optional<DType> bias = {};
  bool windows = false;  // tiles are windows of the tensor; else rows that are looked up
  bool phases = false;   // windows of every stride-th pixel of the input, which is a multiple of it
  bool whole = false;    // of phases or groups: no tile is partly after the channels of a group
  bool full = false;     // of groups: no tile is partly after those that result
  bool grouped = false;  // there are groups of channels
  // So many groups are multiplied as one, whose weights are copied first, among zeros. A call's groups are
  // counted without these.
  int merged = 1;
  bool whole_pieces = false;  // pixels begin at multiples of 16 bytes of an image
  bool pad_from = false;      // pixels that are read, and weights, are copied first: they begin anywhere
  bool pad_to = false;        // pixels of the result, which begin anywhere, are written after the sums
  int images = 1;             // of a tile; more than one only without depth
  int h = 8, w = 8, n = 64,
      k = 64;      // pixels of each; its columns; the step of what is summed, or rows of dweight
  int splits = 1;  // of the pixels that a gradient of weights sums
  // Extents of filters, and strides, by which places are divided; 0: the call says.
  int taps_d = 0, taps_h = 0, taps_w = 0, stride_h = 0, stride = 0;
  int pixels() const { return images * h * w; }
  // Which of the tensors of pixels is the input, with phases.
  bool phases_of_from() const { return phases && pass != ConvPass::input_gradient; }
  bool phases_of_to() const { return phases && pass == ConvPass::input_gradient; }
  auto fields() const {
    return std::tuple(type, labelled("tiles", compute), labelled("out", out), pass, labelled("bias", bias),
                      labelled("windows", windows), labelled("phases", phases), labelled("whole", whole),
                      labelled("full", full), labelled("grouped", grouped),
                      labelled("merged", merged > 1 ? std::optional(merged) : std::nullopt),
                      labelled("pieces", whole_pieces), labelled("pfrom", pad_from), labelled("pto", pad_to),
                      joined("p", h, w),
                      labelled("images", images > 1 ? std::optional(images) : std::nullopt),
                      joined("t", n, k), labelled("splits", splits), labelled("depth", taps_d),
                      joined("taps", taps_h, taps_w), joined("stride", stride_h, stride));
  }
};

// Arguments, in either pass the tensor that taps look into as `from`, [batch, depth, height, width, channels]
// or, where rows are looked up, [pixels, channels]; the scalars batch, depth, height, width, stride,
// padding_d, padding_h, padding_w, dilation and groups. An input with phases is [batch · depth,
// height / stride_h, stride_h, width / stride, stride · channels], with the scalar stride_h. Forward and of
// the input: weight [features, taps_d, taps_h, taps_w, channels of a group], bias, `to` as `from`.
lang::Kernel convolution_program(const ConvKernel& instance);
// The gradient of the weights. Arguments: dout as `from`, with the extents of the result as scalars to_depth,
// to_height and to_width; dweight.
lang::Kernel conv_weights_program(const ConvKernel& instance);

// sums f32 [n] of rows [m, n].
struct ColumnSumsKernel {
  DType type = f32;
  auto fields() const { return std::tuple(type); }
};
lang::Kernel column_sums_program(const ColumnSumsKernel& instance);

}  // namespace tegula::ops

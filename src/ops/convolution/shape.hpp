// A call's convolution as one over three dimensions.
#pragma once
#include <array>

#include "ops/schema/bound.hpp"
#include "tegula/ops/convolution.hpp"

namespace tegula::ops {

template <class Op>
inline constexpr int rank_of_conv = 2;
template <>
inline constexpr int rank_of_conv<Conv1d> = 1;
template <>
inline constexpr int rank_of_conv<Conv3d> = 3;

struct ConvShape {
  using Three = std::array<std::int64_t, 3>;  // depth, height, width
  std::int64_t batch = 0, channels = 0, features = 0, groups = 1, stride = 1, dilation = 1;
  Three in = {1, 1, 1}, out = {1, 1, 1}, taps = {1, 1, 1}, padding = {0, 0, 0};

  // Images of one row have one that every row of the result sees.
  std::int64_t stride_h() const { return in[1] == 1 && out[1] == 1 ? 1 : stride; }
  std::int64_t pixels(const Three& of) const { return of[0] * of[1] * of[2]; }
};

template <class Op>
ConvShape shape_of(const Bound<Op>& c) {
  constexpr const char* in[] = {"depth", "height", "width"};
  constexpr const char* out[] = {"out_depth", "out_height", "out_width"};
  constexpr const char* taps[] = {"taps_d", "taps_h", "taps_w"};
  ConvShape s{c.dim("batch"), c.dim("channels"), c.dim("features"), c->groups, c->stride, c->dilation};
  for (std::size_t i = 3 - rank_of_conv<Op>; i < 3; ++i)
    s.in[i] = c.dim(in[i]), s.out[i] = c.dim(out[i]), s.taps[i] = c.dim(taps[i]), s.padding[i] = c->padding;
  return s;
}

// The tensor with so many dims of 1 after its first.
TensorRef over_three(TensorRef tensor, int rank);
// The input divided into phases: [batch · depth, height / stride_h, stride_h, width / stride, stride ·
// channels].
TensorRef in_phases(const TensorRef& input, const ConvShape& s);
// Whether that is a view of a tensor of five dims.
bool has_phases(const TensorRef& input, const ConvShape& s);

}  // namespace tegula::ops

#include "ops/convolution/shape.hpp"

namespace tegula::ops {

TensorRef over_three(TensorRef tensor, int rank) {
  for (; rank < 3; ++rank) {
    tensor.shape.insert(tensor.shape.begin() + 1, 1);
    tensor.strides.insert(tensor.strides.begin() + 1, 0);
  }
  return tensor;
}

TensorRef in_phases(const TensorRef& input, const ConvShape& s) {
  const std::int64_t of_h = s.stride_h();
  TensorRef result = input;
  result.shape = {s.batch * s.in[0], s.in[1] / of_h, of_h, s.in[2] / s.stride, s.stride * s.channels};
  const auto& steps = input.strides;
  result.strides = {s.in[0] == 1 ? steps[0] : steps[1], steps[2] * of_h, steps[2], steps[3] * s.stride,
                    steps[4]};
  return result;
}

bool has_phases(const TensorRef& input, const ConvShape& s) {
  const auto& steps = input.strides;
  return s.stride > 1 && s.in[1] % s.stride_h() == 0 && s.in[2] % s.stride == 0 &&
         (steps[4] == 1 || s.channels == 1) && steps[3] == s.channels &&
         (s.in[0] == 1 || s.batch == 1 || steps[0] == s.in[0] * steps[1]);
}

}  // namespace tegula::ops

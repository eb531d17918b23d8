// A shared library of a user's, with Tegula inside it and one function of its own.
#include <tegula/tegula.hpp>

extern "C" __attribute__((visibility("default"))) float product(float a, float b, int inner) {
  const auto x = tegula::Tensor::full({2, inner}, tegula::f32, a),
             y = tegula::Tensor::full({3, 2}, tegula::f32, b);
  return tegula::ops::gemm(x, y).at<float>(0, 0);
}

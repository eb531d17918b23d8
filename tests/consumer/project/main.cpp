#include <tegula/tegula.hpp>

int main() {
  const auto a = tegula::Tensor::full({2, 3}, tegula::f32, 2),
             b = tegula::Tensor::full({3, 2}, tegula::f32, 3);
  return tegula::ops::gemm(a, b).at<float>(1, 1) == 18 ? 0 : 1;
}

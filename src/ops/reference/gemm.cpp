#include <cmath>

#include "ops/reference/reference.hpp"

namespace tegula::ops::reference {

namespace {

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

// [batch, rows, columns] in double precision.
Tensor matrices(const TensorRef& tensor, bool transposed) {
  Tensor result = Tensor::adopt(tensor, nullptr).to(f64).contiguous();
  if (result.rank() == 2) result = result.reshape({1, result.size(0), result.size(1)});
  return transposed ? result.transpose(1, 2).contiguous() : result;
}

}  // namespace

Tensor gemm(const TensorRef& a, const TensorRef& b, const GemmOptions& options) {
  const Tensor x = matrices(a, options.transpose_a), y = matrices(b, options.transpose_b);
  const std::int64_t batch = x.size(0) == 1 ? y.size(0) : x.size(0);
  const std::int64_t m = x.size(1), n = y.size(2), inner = x.size(2);
  Tensor out = Tensor::zeros({batch, m, n}, f64);
  for (std::int64_t z = 0; z < batch; ++z) {
    const std::int64_t of_x = x.size(0) == 1 ? 0 : z, of_y = y.size(0) == 1 ? 0 : z;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const double bias = options.bias ? options.bias->get({j}) : 0;
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) sum += x.at<double>(of_x, i, k) * y.at<double>(of_y, k, j);
        out.at<double>(z, i, j) = activate(options.activation, options.scale * sum + bias);
      }
  }
  return a.rank() == 2 && b.rank() == 2 ? out.reshape({m, n}) : out;
}

}  // namespace tegula::ops::reference

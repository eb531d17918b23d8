#include "ops/gated_delta/delta_table.hpp"

#include <algorithm>

namespace tegula::ops {

Tensor keys_of_example(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample& value) {
  const auto d = static_cast<double>(std::max<std::int64_t>(value("d"), 1));
  return Tensor::random_normal(shape, type, seed, 0, value("qk_l2norm") != 0 ? 1 : 0.7 / std::sqrt(d));
}

Tensor shares_of_example(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample&) {
  return Tensor::random_uniform(shape, type, seed, 0, 1);
}

}  // namespace tegula::ops

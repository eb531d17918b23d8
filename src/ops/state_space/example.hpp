// Example values for step sizes, decays and biases.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "tegula/tensor.hpp"

namespace tegula::ops {

// Uniform in a range that is given in tenths.
template <int low, int high>
tegula::Tensor between_of_example(const Shape& shape, DType type, std::uint64_t seed,
                                  const std::function<std::int64_t(const std::string&)>&) {
  return tegula::Tensor::random_uniform(shape, type, seed, low / 10., high / 10.);
}

}  // namespace tegula::ops

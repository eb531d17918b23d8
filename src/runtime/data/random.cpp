#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/machine/thread_pool.hpp"
#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula {
namespace {

// The output function of SplitMix64 (Steele, Lea, Flood 2014): a bijection that scatters a counter.
std::uint64_t scatter(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Number `index` of the stream `seed`, each independent of the others.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  return scatter(scatter(seed + golden) + (index + 1) * golden);
}

// Uniform in [0, 1).
double random_unit(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, index) >> 11) * 0x1p-53;
}

// Values are made as T and converted chunk by chunk, so that large tensors need no second one beside them. A
// value follows from its number, whichever thread makes it.
template <class T, class Value>
Tensor generate(Shape shape, DType dtype, const Value& value) {
  constexpr std::int64_t most = 1 << 14;
  const Tensor result = Tensor::empty(std::move(shape), dtype);
  const std::int64_t count = result.nelements();
  const TensorRef all = result.ref().reshape({count});
  thread_pool().parallel_for((count + most - 1) / most, [&](std::int64_t number) {
    const std::int64_t begin = number * most, n = std::min(most, count - begin);
    const Tensor chunk = Tensor::empty({n}, dtype_of<T>());
    T* values = chunk.data_as<T>();
    for (std::int64_t i = 0; i < n; ++i) values[i] = value(static_cast<std::uint64_t>(begin + i));
    copy_elements(chunk.ref(), all.slice(0, begin, begin + n));
  });
  return result;
}

}  // namespace

Tensor Tensor::random_uniform(Shape shape, DType dtype, std::uint64_t seed, double low, double high) {
  return generate<double>(std::move(shape), dtype,
                          [&](std::uint64_t i) { return low + (high - low) * random_unit(seed, i); });
}

Tensor Tensor::random_normal(Shape shape, DType dtype, std::uint64_t seed, double mean, double deviation) {
  // Box and Muller's transform gives two values for two uniform ones.
  return generate<double>(std::move(shape), dtype, [&](std::uint64_t i) {
    const std::uint64_t pair = i & ~1ull;
    const double radius = std::sqrt(-2 * std::log1p(-random_unit(seed, pair)));
    const double angle = 2 * std::numbers::pi * random_unit(seed, pair + 1);
    return mean + deviation * radius * (i & 1 ? std::sin(angle) : std::cos(angle));
  });
}

Tensor Tensor::random_integers(Shape shape, DType dtype, std::uint64_t seed, std::int64_t low,
                               std::int64_t high) {
  if (low >= high) {
    throw ArgumentError(fmt::format("random_integers needs low < high, but got {} and {}", low, high));
  }
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  return generate<std::int64_t>(std::move(shape), dtype, [&](std::uint64_t i) {
    // The high half of the product is uniform up to 2^-64 * range.
    const auto product = static_cast<unsigned __int128>(random_bits(seed, i)) * range;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) +
                                     static_cast<std::uint64_t>(product >> 64));
  });
}

}  // namespace tegula

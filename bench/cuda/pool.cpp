#include "pool.hpp"

#include <algorithm>

namespace tegula::bench {
namespace {

// Not a power of two, so that rows of matrices do not repeat.
constexpr std::int64_t period = 16'000'057;

}  // namespace

std::int64_t behind(std::int64_t begin, const Shape& shape) {
  return (begin + nelements(shape) + 1023) / 1024 * 1024;
}

Pool::Pool(DType type, std::int64_t elements)
    : host_(Tensor::random_normal({period}, type, 1)),
      device_(Tensor::empty({elements}, type, Device::cuda())) {
  const Tensor once = host_.to(Device::cuda());
  for (std::int64_t begin = 0; begin < elements; begin += period) {
    const std::int64_t count = std::min(period, elements - begin);
    copy_elements(once.slice(0, 0, count), device_.slice(0, begin, begin + count));
  }
}

Tensor Pool::take(const Shape& shape, std::int64_t first) const {
  return device_.slice(0, first, first + nelements(shape)).reshape(shape);
}

float Pool::at(std::int64_t first, std::int64_t index) const {
  return static_cast<float>(host_.get({(first + index) % period}));
}

}  // namespace tegula::bench

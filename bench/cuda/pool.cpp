#include "pool.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace tegula::bench {
namespace {

// Not a power of two, so that rows of matrices do not repeat.
constexpr std::int64_t period = 16'000'057;

struct Numbers {
  Tensor stored, values;  // as the type rounds them; f32
};

const Numbers& random_numbers(DType type) {
  static std::map<std::string, Numbers> made;
  const auto [place, is_new] = made.try_emplace(std::string(type.name()));
  if (is_new) {
    place->second.stored = Tensor::random_normal({period}, type, 1);
    place->second.values = place->second.stored.to(f32);
  }
  return place->second;
}

// A vector on the device that repeats these numbers.
Tensor repeated(const Tensor& numbers, std::int64_t elements) {
  Tensor result = Tensor::empty({elements}, numbers.dtype(), Device::cuda());
  const Tensor once = numbers.to(Device::cuda());
  for (std::int64_t begin = 0; begin < elements; begin += once.size(0)) {
    const std::int64_t count = std::min(once.size(0), elements - begin);
    copy_elements(once.slice(0, 0, count), result.slice(0, begin, begin + count));
  }
  return result;
}

}  // namespace

std::int64_t behind(std::int64_t begin, const Shape& shape) {
  return (begin + nelements(shape) + 1023) / 1024 * 1024;
}

Pool::Pool(DType type, std::int64_t elements)
    : values_(random_numbers(type).values), device_(repeated(random_numbers(type).stored, elements)) {}

Tensor Pool::take(const Shape& shape, std::int64_t first) const {
  return device_.slice(0, first, first + nelements(shape)).reshape(shape);
}

float Pool::at(std::int64_t first, std::int64_t index) const {
  return values_.data_as<float>()[(first + index) % period];
}

Tensor unwritten(const Shape& shape, DType type) {
  const std::int64_t elements = nelements(shape), most = std::int64_t{1} << 22;
  return repeated(Tensor::full({std::min(elements, most)}, type, std::nan("")), elements).reshape(shape);
}

}  // namespace tegula::bench

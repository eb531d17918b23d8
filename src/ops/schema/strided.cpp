#include "ops/schema/strided.hpp"

#include <algorithm>
#include <memory>

namespace tegula::ops {

namespace {

// Whether the tensor lacks the dims that would lie in another way.
bool is_plain(Strides strides, int rank) {
  return strides == Strides::plain || rank < (strides == Strides::swapped ? 3 : 2);
}

// The tensor that holds it.
Shape storage_of(Strides strides, Shape shape) {
  const std::size_t last = shape.size() - 1;
  switch (strides) {
    case Strides::plain:
      break;
    case Strides::sliced:
      shape[last - 1] *= 2;
      break;
    case Strides::padded:
      shape[last] += 8;
      break;
    case Strides::odd:
      shape[last] += 1;
      break;
    case Strides::swapped:
      std::swap(shape[last - 1], shape[last - 2]);
      break;
    case Strides::transposed:
      std::swap(shape[last], shape[last - 1]);
      break;
  }
  return shape;
}

TensorRef view_of(Strides strides, const TensorRef& storage, const Shape& shape) {
  switch (strides) {
    case Strides::plain:
      break;
    case Strides::sliced:
      return storage.slice(-2, 0, shape[shape.size() - 2]);
    case Strides::padded:
    case Strides::odd:
      return storage.slice(-1, 0, shape.back());
    case Strides::swapped:
      return storage.transpose(-3, -2);
    case Strides::transposed:
      return storage.transpose(-2, -1);
  }
  return storage;
}

}  // namespace

TensorRef described_as(Strides strides, DType type, const Shape& shape) {
  if (is_plain(strides, static_cast<int>(shape.size()))) return {nullptr, type, shape};
  return view_of(strides, TensorRef(nullptr, type, storage_of(strides, shape)), shape);
}

Tensor laid_out(Strides strides, const Tensor& values, Device device) {
  if (is_plain(strides, values.rank())) return values.to(device);
  const Tensor host = Tensor::zeros(storage_of(strides, values.shape()), values.dtype());
  copy_elements(values, view_of(strides, host, values.shape()));
  const Tensor storage = host.to(device);
  return Tensor::adopt(view_of(strides, storage, values.shape()), std::make_shared<Tensor>(storage));
}

namespace {

Tensor random_boundaries(std::int64_t count, std::int64_t tokens, std::uint64_t seed) {
  const Tensor cuts = Tensor::random_integers({std::max<std::int64_t>(count, 0)}, i32, seed, 0, tokens + 1);
  if (count < 1) return cuts;
  auto* at = cuts.data_as<std::int32_t>();
  std::sort(at, at + count);
  at[0] = 0, at[count - 1] = static_cast<std::int32_t>(tokens);
  return cuts;
}

struct Part {
  std::int64_t share, of;
};
// What part of the tokens the first i of n sequences have.
Part part_before(Packing packing, std::int64_t i, std::int64_t n) {
  switch (packing) {
    case Packing::rising:
      return {i * (i + 1), n * (n + 1)};
    case Packing::one_long:
      return i == 0 || n == 1 ? Part{i, n} : Part{n - 1 + i - 1, 2 * (n - 1)};
    case Packing::empty:
      return {(i + 1) / 2, (n + 1) / 2};
    default:
      return {i, n};
  }
}

}  // namespace

Tensor boundaries(Packing packing, std::int64_t count, std::int64_t tokens, std::uint64_t seed) {
  if (packing == Packing::random || count < 2) return random_boundaries(count, tokens, seed);
  Tensor result = Tensor::empty({count}, i32);
  for (std::int64_t i = 0; i < count; ++i) {
    const Part part = part_before(packing, i, count - 1);
    result.set({i}, static_cast<double>(tokens * part.share / part.of));
  }
  return result;
}

}  // namespace tegula::ops

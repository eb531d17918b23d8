#include "tegula/tensor.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "cuda/memory.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

constexpr std::size_t alignment = 64;
// What a process can address on the processors of today; allocators are not asked for more.
constexpr std::size_t address_space = std::size_t{1} << 47;

// Tiles are rows of distant tokens, each on a page of its own: with small pages a kernel waits for the tables
// of pages as long as for the rows. Large tensors begin at a large page and ask for such, except for what is
// left of one.
constexpr std::size_t large_page = std::size_t{1} << 21, large_tensor = 2 * large_page;

void* allocate_aligned(std::size_t bytes) {
  if (bytes < large_tensor) return std::aligned_alloc(alignment, bytes);
  void* data = nullptr;  // aligned_alloc takes multiples of a page only
  if (posix_memalign(&data, large_page, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  madvise(data, bytes / large_page * large_page, MADV_HUGEPAGE);  // where the system has them
#endif
  return data;
}

std::shared_ptr<void> allocate(std::size_t bytes, const Shape& shape, DType dtype) {
  // Rounded up, so that kernels may read whole vectors at the end.
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* data = rounded <= address_space ? allocate_aligned(rounded) : nullptr;
  if (data == nullptr) {
    throw DeviceError(
        fmt::format("out of memory: {} {} needs {} bytes", dtype.name(), describe(shape), bytes));
  }
  return {data, std::free};
}

}  // namespace

Tensor Tensor::empty(Shape shape, DType dtype, const Device& device) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(tegula::nelements(shape), dtype.bytes(), &bytes) ||
      bytes > std::numeric_limits<std::int64_t>::max() - static_cast<std::int64_t>(alignment)) {
    throw ArgumentError(
        fmt::format("{} {} has more bytes than a 64-bit integer can count", dtype.name(), describe(shape)));
  }
  std::shared_ptr<void> owner = device.is_cpu()
                                    ? allocate(bytes, shape, dtype)
                                    : cuda::allocate(device.index, static_cast<std::size_t>(bytes));
  void* data = owner.get();
  return Tensor(TensorRef(data, dtype, std::move(shape), device), std::move(owner));
}

Tensor Tensor::zeros(Shape shape, DType dtype, const Device& device) {
  Tensor result = empty(std::move(shape), dtype, device);
  if (device.is_cpu())
    std::memset(result.data(), 0, result.nbytes());
  else
    cuda::clear(result.ref());
  return result;
}

Tensor Tensor::full(Shape shape, DType dtype, double value) {
  Tensor result = empty(std::move(shape), dtype);
  const Tensor one = empty({}, dtype);
  one.set({}, value);
  copy_elements(one.expand(result.shape()), result);
  return result;
}

Tensor Tensor::arange(std::int64_t count, DType dtype, double start, double step) {
  Tensor values = empty({count}, f64);
  auto* out = values.data_as<double>();
  for (std::int64_t i = 0; i < count; ++i) out[i] = start + static_cast<double>(i) * step;
  return values.to(dtype);
}

Tensor Tensor::adopt(TensorRef ref, std::shared_ptr<void> owner) {
  return {std::move(ref), std::move(owner)};
}

void Tensor::check_count(std::size_t values) const {
  if (static_cast<std::int64_t>(values) != nelements()) {
    throw ArgumentError(
        fmt::format("{} values given for shape {}, which has {}", values, describe(shape()), nelements()));
  }
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (const std::optional<TensorRef> same = ref_.try_reshape(shape)) return view(*same);
  const Tensor copy = clone();
  return copy.view(copy.ref_.reshape(shape));
}

Tensor Tensor::contiguous() const { return is_contiguous(ref_) ? *this : clone(); }

Tensor Tensor::clone() const {
  Tensor result = empty(shape(), dtype(), device());
  copy_elements(ref_, result.ref_);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == this->dtype()) return *this;
  Tensor result = empty(shape(), dtype, device());
  copy_elements(ref_, result.ref_);
  return result;
}

Tensor Tensor::to(const Device& device) const {
  if (device == this->device()) return *this;
  Tensor result = empty(shape(), dtype(), device);
  copy_elements(ref_, result.ref_);
  return result;
}

}  // namespace tegula

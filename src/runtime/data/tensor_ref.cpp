#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula {
namespace {

[[noreturn]] void overflow(const Shape& shape) {
  throw ArgumentError(
      fmt::format("shape {} has more elements than a 64-bit integer can count", describe(shape)));
}

int checked_dim(const TensorRef& tensor, int dim) {
  const int rank = tensor.rank();
  if (dim < -rank || dim >= rank) {
    throw ArgumentError(fmt::format("there is no dimension {} in {}; dimensions are {} to {}", dim,
                                    describe(tensor), -rank, rank - 1));
  }
  return dim < 0 ? dim + rank : dim;
}

std::byte* advance(const TensorRef& tensor, std::int64_t elements) {
  // An empty tensor may have no storage, and arithmetic on a null pointer is undefined.
  auto* bytes = static_cast<std::byte*>(tensor.data);
  return elements == 0 ? bytes : bytes + elements * tensor.dtype.bytes();
}

// Replaces one extent of -1 by what the number of elements leaves for it.
Shape resolve_extent(const TensorRef& tensor, const Shape& shape) {
  Shape resolved = shape;
  const auto free = std::find(resolved.begin(), resolved.end(), -1);
  const std::int64_t count = nelements(tensor);
  if (free != resolved.end()) {
    *free = 1;
    const std::int64_t others = nelements(resolved);
    if (others == 0 || count % others != 0) {
      throw ArgumentError(fmt::format("cannot reshape {} to {}: {} elements are not a multiple of {}",
                                      describe(tensor), describe(shape), count, others));
    }
    *free = count / others;
  }
  if (nelements(resolved) != count) {
    throw ArgumentError(fmt::format("cannot reshape {} to {}: {} elements against {}", describe(tensor),
                                    describe(shape), count, nelements(resolved)));
  }
  return resolved;
}

struct Dim {
  std::int64_t extent, stride;
};

// The dimensions of a tensor with neighbours merged that one stride describes, without those of extent 1.
std::vector<Dim> merged_dims(const TensorRef& tensor) {
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const Dim dim{tensor.shape[i], tensor.strides[i]};
    if (dim.extent == 1) continue;
    if (!dims.empty() && dims.back().stride == dim.extent * dim.stride) {
      dims.back() = {dims.back().extent * dim.extent, dim.stride};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

// Strides with which `shape` walks the elements of `tensor` in order: every merged dimension must be the
// product of some neighbouring extents.
std::optional<Shape> reshaped_strides(const TensorRef& tensor, const Shape& shape) {
  Shape strides = row_major_strides(shape);
  if (nelements(shape) == 0) return strides;
  const std::vector<Dim> dims = merged_dims(tensor);
  auto dim = dims.rbegin();
  std::int64_t covered = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    strides[i] = covered * dim->stride;
    covered *= shape[i];
    if (dim->extent % covered != 0) return std::nullopt;
    if (covered == dim->extent) {
      ++dim;
      covered = 1;
    }
  }
  return strides;
}

}  // namespace

std::string Device::name() const { return is_cpu() ? "cpu" : fmt::format("cuda:{}", index); }

TensorRef::TensorRef(void* data, DType dtype, Shape shape, Device device)
    : data(data),
      dtype(dtype),
      shape(std::move(shape)),
      strides(row_major_strides(this->shape)),
      device(device) {}

TensorRef::TensorRef(void* data, DType dtype, Shape shape, Shape strides, Device device)
    : data(data), dtype(dtype), shape(std::move(shape)), strides(std::move(strides)), device(device) {
  tegula::nelements(this->shape);
  if (this->shape.size() != this->strides.size()) {
    throw ArgumentError(fmt::format("shape {} needs as many strides as extents, but got {}",
                                    describe(this->shape), describe(this->strides)));
  }
}

std::int64_t TensorRef::size(int dim) const { return shape[checked_dim(*this, dim)]; }
std::int64_t TensorRef::stride(int dim) const { return strides[checked_dim(*this, dim)]; }

std::int64_t TensorRef::offset(std::span<const std::int64_t> index) const {
  if (index.size() != shape.size()) {
    throw ArgumentError(fmt::format("{} indices given for {}, which has {} dimensions", index.size(),
                                    describe(*this), shape.size()));
  }
  std::int64_t result = 0;
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] < 0 || index[i] >= shape[i]) {
      throw ArgumentError(
          fmt::format("index {} is outside dimension {} of {}", index[i], i, describe(*this)));
    }
    result += index[i] * strides[i];
  }
  return result;
}

std::int64_t TensorRef::host_offset(std::span<const std::int64_t> index) const {
  if (!device.is_cpu()) {
    throw ArgumentError(fmt::format("elements of {} are on {}; copy the tensor to the cpu to read them",
                                    describe(*this), device.name()));
  }
  return offset(index);
}

void TensorRef::check_access(bool accessible, std::size_t bytes) const {
  if (accessible) return;
  throw ArgumentError(
      fmt::format("elements of {} cannot be accessed as a C++ type of {} bytes that is not {}; "
                  "convert with to(dtype) first",
                  describe(*this), bytes, dtype.name()));
}

double TensorRef::get(std::span<const std::int64_t> index) const {
  std::uint64_t bits = 0;
  std::memcpy(&bits, advance(*this, host_offset(index)), dtype.bytes());
  return decode(dtype, bits);
}

void TensorRef::set(std::span<const std::int64_t> index, double value) const {
  const std::uint64_t bits = encode(dtype, value);
  std::memcpy(advance(*this, host_offset(index)), &bits, dtype.bytes());
}

TensorRef TensorRef::slice(int dim, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  const int d = checked_dim(*this, dim);
  const std::int64_t extent = shape[d];
  const std::int64_t first = begin < 0 ? begin + extent : begin, last = end < 0 ? end + extent : end;
  if (step < 1 || first < 0 || last < first || last > extent) {
    throw ArgumentError(
        fmt::format("slice {}:{}:{} is not inside dimension {} of {}; the step must be at least 1", begin,
                    end, step, d, describe(*this)));
  }
  TensorRef result = *this;
  const std::int64_t length = last - first;
  result.shape[d] = length / step + (length % step != 0);
  if (length > 0) {
    result.data = advance(*this, first * strides[d]);
    // A step beyond the end leaves one element, whose stride is never used.
    result.strides[d] = result.shape[d] == 1 ? strides[d] : strides[d] * step;
  }
  return result;
}

TensorRef TensorRef::select(int dim, std::int64_t index) const {
  const int d = checked_dim(*this, dim);
  const std::int64_t at = index < 0 ? index + shape[d] : index;
  if (at < 0 || at >= shape[d]) {
    throw ArgumentError(fmt::format("index {} is outside dimension {} of {}", index, d, describe(*this)));
  }
  TensorRef result = slice(d, at, at + 1);
  result.shape.erase(result.shape.begin() + d);
  result.strides.erase(result.strides.begin() + d);
  return result;
}

TensorRef TensorRef::flip(int dim) const {
  const int d = checked_dim(*this, dim);
  TensorRef result = *this;
  if (tegula::nelements(shape) > 0) result.data = advance(*this, (shape[d] - 1) * strides[d]);
  result.strides[d] = -strides[d];
  return result;
}

TensorRef TensorRef::transpose(int dim_a, int dim_b) const {
  const int a = checked_dim(*this, dim_a), b = checked_dim(*this, dim_b);
  TensorRef result = *this;
  std::swap(result.shape[a], result.shape[b]);
  std::swap(result.strides[a], result.strides[b]);
  return result;
}

TensorRef TensorRef::permute(std::span<const int> dims) const {
  std::vector<bool> seen(shape.size());
  TensorRef result = *this;
  const auto refuse = [&] {
    throw ArgumentError(fmt::format("permute({}) does not name every dimension of {} once",
                                    fmt::join(dims, ", "), describe(*this)));
  };
  if (dims.size() != shape.size()) refuse();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const int d = checked_dim(*this, dims[i]);
    if (seen[d]) refuse();
    seen[d] = true;
    result.shape[i] = shape[d];
    result.strides[i] = strides[d];
  }
  return result;
}

TensorRef TensorRef::expand(const Shape& target) const {
  const auto refuse = [&] {
    throw ArgumentError(fmt::format("cannot expand {} to {}: only dimensions of extent 1 can be repeated",
                                    describe(*this), describe(target)));
  };
  if (target.size() < shape.size()) refuse();
  TensorRef result(data, dtype, target, Shape(target.size(), 0), device);
  const std::size_t added = target.size() - shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == target[added + i]) {
      result.strides[added + i] = strides[i];
    } else if (shape[i] != 1) {
      refuse();
    }
  }
  return result;
}

std::optional<TensorRef> TensorRef::try_reshape(const Shape& target) const {
  const Shape resolved = resolve_extent(*this, target);
  const std::optional<Shape> found = reshaped_strides(*this, resolved);
  if (!found) return std::nullopt;
  return TensorRef(data, dtype, resolved, *found, device);
}

TensorRef TensorRef::reshape(const Shape& target) const {
  const std::optional<TensorRef> result = try_reshape(target);
  if (!result) {
    throw ArgumentError(fmt::format("no strides describe {} as {}; make it contiguous first", describe(*this),
                                    describe(target)));
  }
  return *result;
}

std::int64_t nelements(const Shape& shape) {
  std::int64_t product = 1;
  bool empty = false, too_large = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw ArgumentError(fmt::format("shape {} has a negative extent", describe(shape)));
    if (extent == 0) empty = true;
    if (!too_large) too_large = __builtin_mul_overflow(product, std::max<std::int64_t>(extent, 1), &product);
  }
  if (too_large) overflow(shape);
  return empty ? 0 : product;
}

std::int64_t nelements(const TensorRef& tensor) { return nelements(tensor.shape); }

Shape row_major_strides(const Shape& shape) {
  nelements(shape);  // refuses what would overflow below
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

bool is_contiguous(const TensorRef& tensor) {
  std::int64_t stride = 1;
  if (nelements(tensor) == 0) return true;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

ByteRange byte_range(const TensorRef& tensor) {
  const auto base = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (nelements(tensor) == 0) return {base, base};
  std::int64_t low = 0, high = 1;
  bool wraps = false;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::int64_t reach = 0;
    wraps |= __builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach);
    std::int64_t& end = reach < 0 ? low : high;
    wraps |= __builtin_add_overflow(end, reach, &end);
  }
  wraps |= __builtin_mul_overflow(low, tensor.dtype.bytes(), &low);
  wraps |= __builtin_mul_overflow(high, tensor.dtype.bytes(), &high);
  std::uintptr_t begin = 0, end = 0;
  wraps |= __builtin_add_overflow(base, low, &begin) || __builtin_add_overflow(base, high, &end);
  if (wraps) { throw ArgumentError(fmt::format("{} reaches beyond the address space", describe(tensor))); }
  return {begin, end};
}

std::string describe(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string describe(const TensorRef& tensor) {
  return fmt::format("{} {} strides {}{}", tensor.dtype.name(), describe(tensor.shape),
                     describe(tensor.strides), tensor.device.is_cpu() ? "" : " on " + tensor.device.name());
}

}  // namespace tegula

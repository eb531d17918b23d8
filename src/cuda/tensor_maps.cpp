#include "cuda/tensor_maps.hpp"

#include <fmt/format.h>

#include "tegula/error.hpp"

namespace tegula::cuda {
namespace {

constexpr std::uint64_t unit = 16;  // bytes to which addresses and strides must be aligned
constexpr std::uint64_t longest_stride = std::uint64_t{1} << 40;
constexpr int no_interleave = 0, promote_128 = 2, fill_zeros = 0;

TensorMapType type_of(DType dtype) {
  if (dtype == f16) return TensorMapType::f16;
  if (dtype == bf16) return TensorMapType::bf16;
  if (dtype == f32) return TensorMapType::f32;
  if (dtype == f64) return TensorMapType::f64;
  if (dtype.bytes() == 1) return TensorMapType::u8;
  if (dtype.bytes() == 2) return TensorMapType::u16;
  return dtype.bytes() == 4 ? TensorMapType::u32 : TensorMapType::u64;
}

Swizzle swizzle_of(int row_bytes) {
  if (row_bytes == 32) return Swizzle::bytes_32;
  if (row_bytes == 64) return Swizzle::bytes_64;
  internal_assert(row_bytes == 128, "swizzled rows have 32, 64 or 128 bytes");
  return Swizzle::bytes_128;
}

}  // namespace

std::optional<TensorMapRequest> request_map(const codegen::CudaProgram::TensorMap& plan,
                                            const TensorRef& tensor) {
  const auto rank = static_cast<std::size_t>(tensor.rank());
  internal_assert(rank >= 1 && rank <= 5 && plan.box.size() + 1 == rank,
                  "a tensor map has one to five dimensions and a box of the same rank");
  const std::int64_t bytes = tensor.dtype.bytes();
  TensorMapRequest request{type_of(tensor.dtype), Swizzle::none, static_cast<std::uint32_t>(rank)};
  if (plan.is_swizzled) request.swizzle = swizzle_of(plan.columns * static_cast<int>(bytes));
  request.address = reinterpret_cast<DeviceAddress>(tensor.data);
  if (request.address % unit != 0) return std::nullopt;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t dim = rank - 1 - i;
    const std::int64_t extent = tensor.shape[dim];
    // No map describes a tensor without elements, and programs may load windows that are outside of one.
    if (extent == 0) return std::nullopt;
    // The stride of a dimension of extent 1 is never used, so it may be anything.
    const std::int64_t usual = i == 0 ? bytes : static_cast<std::int64_t>(unit);
    const std::int64_t stride = extent == 1 ? usual : tensor.strides[dim] * bytes;
    if (i == 0 ? stride != bytes : stride % static_cast<std::int64_t>(unit) != 0) return std::nullopt;
    if (stride < 0 || static_cast<std::uint64_t>(stride) >= longest_stride) return std::nullopt;
    request.extents[i] = static_cast<std::uint64_t>(extent);
    request.strides[i] = static_cast<std::uint64_t>(stride);
    request.box[i] = static_cast<std::uint32_t>(i == 0 ? plan.columns : plan.box[dim]);
    if (i == 1 && plan.is_rest && extent % request.box[i] != 0)
      request.box[i] = static_cast<std::uint32_t>(extent % request.box[i]);
  }
  return request;
}

bool is_off_sectors(const TensorMapRequest& request) {
  constexpr std::uint64_t sector = 32;
  bool off = request.address % sector != 0;
  for (std::size_t i = 1; i < request.rank; ++i)
    off |= request.extents[i] > 1 && request.strides[i] % sector != 0;
  return off;
}

bool has_aligned_rows(const TensorRef& tensor, int bytes) {
  if (reinterpret_cast<DeviceAddress>(tensor.data) % static_cast<DeviceAddress>(bytes) != 0) return false;
  for (int d = 0; d < tensor.rank(); ++d) {
    const bool is_last = d + 1 == tensor.rank();
    const std::int64_t stride = tensor.strides[static_cast<std::size_t>(d)];
    if (tensor.shape[static_cast<std::size_t>(d)] == 1 && !is_last) continue;
    const bool narrow = d + static_cast<int>(codegen::narrow_strides) >= tensor.rank();
    if (narrow && stride != static_cast<std::int32_t>(stride)) return false;
    if (is_last ? stride != 1 : stride * tensor.dtype.bytes() % bytes != 0) return false;
  }
  return true;
}

TensorMap encode(const TensorMapRequest& request) {
  TensorMap map{};
  constexpr std::uint32_t ones[5] = {1, 1, 1, 1, 1};
  const Driver& d = driver();
  d(d.TensorMapEncodeTiled, &map, request.type, request.rank, reinterpret_cast<void*>(request.address),
    request.extents.data(), request.strides.data() + 1, request.box.data(),
    static_cast<const std::uint32_t*>(ones), no_interleave, request.swizzle, promote_128, fill_zeros);
  return map;
}

TensorMap TensorMapCache::get(const TensorMapRequest& request) {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.request == request) return entry.map;
  }
  const Entry entry{request, encode(request)};
  if (entries_.size() < most)
    entries_.push_back(entry);
  else
    entries_[next_++ % most] = entry;
  return entry.map;
}

}  // namespace tegula::cuda

#include "cuda/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "cuda/gpu.hpp"
#include "cuda/streams.hpp"
#include "tegula/error.hpp"
#include "tegula/stream.hpp"

namespace tegula::cuda {
namespace {

std::atomic<int> poisoning{0};

void check_not_capturing(const Stream& stream, const char* what) {
  if (!stream.is_capturing()) return;
  throw DeviceError(fmt::format("{} while the stream is captured into a graph; {}", what,
                                "create tensors earlier, and pass outputs to operators"));
}

// Frees in the order of the stream; memory of another library's stream, which may be gone, after all work.
void release(const Gpu& gpu, const Stream& stream, bool owned, DeviceAddress address) noexcept {
  try {
    const CurrentContext current(gpu);
    const Driver& d = driver();
    if (!owned || stream.is_capturing() || d.MemFreeAsync(address, handle_of(stream)) != success) {
      CaptureMode relaxed = CaptureMode::relaxed;
      d.ThreadExchangeStreamCaptureMode(&relaxed);
      d.MemFree(address);
      d.ThreadExchangeStreamCaptureMode(&relaxed);
    }
  } catch (const Error&) {
    // The driver is gone, and the memory with it.
  }
}

// Kernels read rows by words of 16 bytes that hold one of their elements.
std::size_t whole_words(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + 15) / 16 * 16; }

void* allocate_in_order(const Stream& stream, std::size_t bytes) {
  const Driver& d = driver();
  DeviceAddress address = 0;
  d(d.MemAllocAsync, &address, whole_words(bytes), handle_of(stream));
  if (PoisonedAllocations::active())
    d(d.MemsetD8Async, address, static_cast<unsigned char>(0xff), bytes, handle_of(stream));
  return reinterpret_cast<void*>(address);
}

// A dimension that is walked; strides in bytes, positive.
struct Walk {
  std::int64_t extent, stride;
};

// The tensor's bytes as walked dimensions, innermost last, from the lowest address on. Neighbours that one
// stride describes are joined.
std::vector<Walk> walk_of(const TensorRef& tensor, DeviceAddress& lowest) {
  const std::int64_t bytes = tensor.dtype.bytes();
  std::vector<Walk> walks;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    std::int64_t stride = tensor.strides[d] * bytes;
    const std::int64_t extent = tensor.shape[d];
    if (extent == 1 || stride == 0) continue;
    if (stride < 0) lowest += static_cast<DeviceAddress>((extent - 1) * stride), stride = -stride;
    walks.push_back({extent, stride});
  }
  std::sort(walks.begin(), walks.end(), [](const Walk& a, const Walk& b) { return a.stride > b.stride; });
  walks.push_back({bytes, 1});
  for (std::size_t i = walks.size(); --i > 0;) {
    if (walks[i - 1].stride != walks[i].extent * walks[i].stride) continue;
    walks[i - 1] = {walks[i - 1].extent * walks[i].extent, walks[i].stride};
    walks.erase(walks.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return walks;
}

void clear_walk(DeviceAddress at, std::span<const Walk> walks, StreamHandle stream) {
  const Driver& d = driver();
  constexpr unsigned char zero = 0;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  if (walks.size() == 1) return d(d.MemsetD8Async, at, zero, size(walks[0].extent), stream);
  if (walks.size() == 2 && walks[1].stride == 1) {
    return d(d.MemsetD2D8Async, at, size(walks[0].stride), zero, size(walks[1].extent), size(walks[0].extent),
             stream);
  }
  for (std::int64_t i = 0; i < walks[0].extent; ++i) {
    clear_walk(at + static_cast<DeviceAddress>(i * walks[0].stride), walks.subspan(1), stream);
  }
}

bool can_copy_directly(const TensorRef& from, const TensorRef& to) {
  return from.dtype == to.dtype && is_contiguous(from) && is_contiguous(to);
}

// Contiguous, of one dtype, at least one of them on a device.
void copy_bytes(const TensorRef& from, const TensorRef& to) {
  const Device& device = from.device.is_cpu() ? to.device : from.device;
  const Gpu& gpu = Gpu::get(device.index);
  const CurrentContext current(gpu);
  const Stream stream = current_stream(device);
  const StreamHandle queue = handle_of(stream);
  const Driver& d = driver();
  const auto bytes = static_cast<std::size_t>(nelements(from)) * static_cast<std::size_t>(from.dtype.bytes());
  if (from.device == to.device)
    return d(d.MemcpyDtoDAsync, address_of(to.data), address_of(from.data), bytes, queue);
  check_not_capturing(stream, "a copy between devices or with the host");
  if (from.device.is_cpu()) {
    d(d.MemcpyHtoDAsync, address_of(to.data), static_cast<const void*>(from.data), bytes, queue);
  } else if (to.device.is_cpu()) {
    d(d.MemcpyDtoHAsync, to.data, address_of(from.data), bytes, queue);
  } else {
    current_stream(to.device).synchronize();
    d(d.MemcpyPeerAsync, address_of(to.data), Gpu::get(to.device.index).context(), address_of(from.data),
      gpu.context(), bytes, queue);
  }
  stream.synchronize();
}

// A dimension along which two tensors are walked together; strides in bytes, not negative.
struct CommonWalk {
  std::int64_t extent, from, to;
};

// The bytes of both as walked dimensions, innermost last and the longest of the others before it; nothing if
// one goes backwards somewhere, or if elements of `to` coincide.
std::vector<CommonWalk> common_walks(const TensorRef& from, const TensorRef& to) {
  const std::int64_t bytes = from.dtype.bytes();
  std::vector<CommonWalk> walks;
  for (std::size_t d = 0; d < from.shape.size(); ++d) {
    if (from.shape[d] == 1) continue;
    if (from.strides[d] < 0 || to.strides[d] <= 0) return {};
    walks.push_back({from.shape[d], from.strides[d] * bytes, to.strides[d] * bytes});
  }
  std::sort(walks.begin(), walks.end(), [](const CommonWalk& a, const CommonWalk& b) { return a.to > b.to; });
  walks.push_back({bytes, 1, 1});
  for (std::size_t i = walks.size(); --i > 0;) {
    const CommonWalk &outer = walks[i - 1], &inner = walks[i];
    if (outer.from != inner.extent * inner.from || outer.to != inner.extent * inner.to) continue;
    walks[i - 1] = {outer.extent * inner.extent, inner.from, inner.to};
    walks.erase(walks.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const auto inner = walks.end() - 1;
  const auto longest = std::max_element(
      walks.begin(), inner, [](const CommonWalk& a, const CommonWalk& b) { return a.extent < b.extent; });
  if (longest != inner) std::iter_swap(longest, inner - 1);
  return walks;
}

void copy_walks(DeviceAddress from, DeviceAddress to, std::span<const CommonWalk> walks,
                StreamHandle stream) {
  const Driver& d = driver();
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const auto address = [](std::int64_t n) { return static_cast<DeviceAddress>(n); };
  if (walks.size() == 1) return d(d.MemcpyDtoDAsync, to, from, size(walks[0].extent), stream);
  if (walks.size() == 2) {
    RowsCopy rows;
    rows.from.device = from, rows.from.pitch = size(walks[0].from);
    rows.to.device = to, rows.to.pitch = size(walks[0].to);
    rows.bytes = size(walks[1].extent), rows.rows = size(walks[0].extent);
    const RowsCopy* const given = &rows;
    return d(d.Memcpy2DAsync, given, stream);
  }
  for (std::int64_t i = 0; i < walks[0].extent; ++i)
    copy_walks(from + address(i * walks[0].from), to + address(i * walks[0].to), walks.subspan(1), stream);
}

// Copies rows of bytes within a device if these are few commands, and rows of the driver's own form: they do
// not overlap, and are not too far apart. False if not.
bool copy_rows_on_device(const TensorRef& from, const TensorRef& to) {
  constexpr std::int64_t fewest_bytes = 16, most_commands = 64, most_pitch = std::int64_t{1} << 31;
  if (from.device != to.device || from.dtype != to.dtype || nelements(from) == 0) return false;
  const std::vector<CommonWalk> walks = common_walks(from, to);
  if (walks.empty() || walks.back().extent < fewest_bytes) return false;
  std::int64_t commands = 1;
  for (std::size_t i = 0; i + 2 < walks.size(); ++i) commands *= walks[i].extent;
  if (walks.size() >= 2) {
    const CommonWalk& rows = walks[walks.size() - 2];
    const std::int64_t least = std::min(rows.from, rows.to), most = std::max(rows.from, rows.to);
    if (least < walks.back().extent || most >= most_pitch) return false;
  }
  if (commands > most_commands) return false;
  const Gpu& gpu = Gpu::get(from.device.index);
  const CurrentContext current(gpu);
  copy_walks(address_of(from.data), address_of(to.data), walks, handle_of(current_stream(from.device)));
  return true;
}

// The tensor's elements on the host: all that is between its first and its last one is copied.
Tensor on_host(const TensorRef& tensor) {
  const ByteRange range = byte_range(tensor);
  const auto bytes = static_cast<std::int64_t>(range.end - range.begin);
  const Tensor copy = Tensor::empty({bytes}, u8);
  copy_bytes(TensorRef(reinterpret_cast<void*>(range.begin), u8, {bytes}, tensor.device), copy);
  auto* data = static_cast<std::byte*>(copy.data()) + (address_of(tensor.data) - range.begin);
  return Tensor::adopt(TensorRef(data, tensor.dtype, tensor.shape, tensor.strides), copy.owner());
}

}  // namespace

std::shared_ptr<void> allocate(int device, std::size_t bytes) {
  const Gpu& gpu = Gpu::get(device);
  const CurrentContext current(gpu);
  const Stream stream = current_stream(Device::cuda(device));
  check_not_capturing(stream, "memory cannot be allocated");
  const bool owned = stream.is_owned();
  return {allocate_in_order(stream, bytes),
          [&gpu, stream, owned](void* data) { release(gpu, stream, owned, address_of(data)); }};
}

std::shared_ptr<void> allocate_scratch(int device, std::size_t bytes) {
  const Gpu& gpu = Gpu::get(device);
  const CurrentContext current(gpu);
  const Stream stream = current_stream(Device::cuda(device));
  return {allocate_in_order(stream, bytes), [&gpu, stream](void* data) {
            const CurrentContext now(gpu);
            driver().MemFreeAsync(address_of(data), handle_of(stream));
          }};
}

PoisonedAllocations::PoisonedAllocations() { ++poisoning; }
PoisonedAllocations::~PoisonedAllocations() { --poisoning; }
bool PoisonedAllocations::active() { return poisoning > 0; }

void clear(const TensorRef& tensor) {
  if (nelements(tensor) == 0) return;
  const CurrentContext current(Gpu::get(tensor.device.index));
  DeviceAddress lowest = address_of(tensor.data);
  const std::vector<Walk> walks = walk_of(tensor, lowest);
  clear_walk(lowest, walks, handle_of(current_stream(tensor.device)));
}

void copy_elements(const TensorRef& from, const TensorRef& to) {
  if (can_copy_directly(from, to)) return copy_bytes(from, to);
  if (!from.device.is_cpu() && copy_rows_on_device(from, to)) return;
  const Tensor source = from.device.is_cpu() ? Tensor::adopt(from, nullptr) : on_host(from);
  if (to.device.is_cpu()) return tegula::copy_elements(source, to);
  // What is between the elements of `to` is written back as it was.
  const Tensor target = is_contiguous(to) ? Tensor::empty(to.shape, to.dtype) : on_host(to);
  tegula::copy_elements(source, target);
  if (is_contiguous(to)) return copy_bytes(target, to);
  const ByteRange range = byte_range(to);
  const auto bytes = static_cast<std::int64_t>(range.end - range.begin);
  auto* data = static_cast<std::byte*>(target.data()) - (address_of(to.data) - range.begin);
  copy_bytes(TensorRef(data, u8, {bytes}),
             TensorRef(reinterpret_cast<void*>(range.begin), u8, {bytes}, to.device));
}

}  // namespace tegula::cuda

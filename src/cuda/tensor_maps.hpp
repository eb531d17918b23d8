// Tensor maps of calls: encoded if a pointer, a shape or a stride is new, otherwise reused.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "codegen/cuda_program.hpp"
#include "cuda/driver.hpp"

namespace tegula::cuda {

// What the driver is asked to encode. Dimensions beyond `rank` are zero.
struct TensorMapRequest {
  TensorMapType type = TensorMapType::u8;
  Swizzle swizzle = Swizzle::none;
  std::uint32_t rank = 0;
  DeviceAddress address = 0;
  std::array<std::uint64_t, 5> extents{};
  std::array<std::uint64_t, 5> strides{};  // in bytes; the first is that of an element
  std::array<std::uint32_t, 5> box{};
  friend bool operator==(const TensorMapRequest&, const TensorMapRequest&) = default;
};

// Nothing if no map describes the tensor: an address or a stride off 16 bytes, a negative stride, an inner
// one other than one element.
std::optional<TensorMapRequest> request_map(const codegen::CudaProgram::TensorMap& plan,
                                            const TensorRef& tensor);

// Whether some rows begin in the middle of a sector of the cache: the copy engine takes more than twice as
// long for them.
bool is_off_sectors(const TensorMapRequest& request);

// Whether rows of the tensor, without holes, begin at multiples of so many bytes.
bool has_aligned_rows(const TensorRef& tensor, int bytes);

// A DeviceError if the driver refuses.
TensorMap encode(const TensorMapRequest& request);

// The maps of one place in a program, for the tensors of the last calls.
class TensorMapCache {
 public:
  TensorMap get(const TensorMapRequest& request);

 private:
  struct Entry {
    TensorMapRequest request;
    TensorMap map;
  };
  static constexpr std::size_t most = 16;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::size_t next_ = 0;
};

}  // namespace tegula::cuda

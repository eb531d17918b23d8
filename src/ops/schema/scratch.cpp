#include "ops/schema/scratch.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda/memory.hpp"

namespace tegula::ops {

namespace {

// Large memory of earlier calls on a CPU: fresh memory costs a page fault per 4 KiB, a fifth of the time of
// calls that pass much from grid to grid.
class KeptMemory {
 public:
  static constexpr std::size_t least = std::size_t{1} << 20, most = std::size_t{256} << 20;

  // The smallest tensor of bytes that is large enough and not more than twice too large, or nothing.
  std::optional<Tensor> take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = kept_.end();
    for (auto own = kept_.begin(); own != kept_.end(); ++own)
      if (own->nbytes() >= bytes && own->nbytes() / 2 <= bytes &&
          (best == kept_.end() || own->nbytes() < best->nbytes()))
        best = own;
    if (best == kept_.end()) return std::nullopt;
    Tensor result = std::move(*best);
    kept_.erase(best);
    return result;
  }

  // What was kept first goes first.
  void keep(Tensor memory) {
    std::vector<Tensor> gone;  // freed without the lock
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(memory));
    std::size_t bytes = 0;
    for (const Tensor& own : kept_) bytes += own.nbytes();
    while (bytes > most) {
      bytes -= kept_.front().nbytes();
      gone.push_back(std::move(kept_.front()));
      kept_.erase(kept_.begin());
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Tensor> kept_;
};

Tensor scratch_of_cpu(const Shape& shape, DType dtype) {
  // Tensors may outlive the program's static objects.
  static const auto pool = std::make_shared<KeptMemory>();
  const std::int64_t elements = nelements(shape);
  const auto of = [&](std::size_t bytes) { return static_cast<std::int64_t>(bytes) / dtype.bytes(); };
  if (elements < of(KeptMemory::least) || elements > of(KeptMemory::most)) return Tensor::empty(shape, dtype);
  const auto bytes = static_cast<std::size_t>(elements * dtype.bytes());
  std::optional<Tensor> memory = pool->take(bytes);
  if (!memory) memory = Tensor::empty({static_cast<std::int64_t>(bytes)}, u8);
  void* const data = memory->data();
  std::shared_ptr<void> owner(data, [kept = pool, memory = *memory](void*) { kept->keep(memory); });
  return Tensor::adopt(TensorRef(data, dtype, shape, Device::cpu()), std::move(owner));
}

}  // namespace

Tensor scratch(const Shape& shape, DType dtype, const Device& device) {
  if (device.is_cpu()) return scratch_of_cpu(shape, dtype);
  const auto bytes = static_cast<std::size_t>(nelements(shape) * dtype.bytes());
  std::shared_ptr<void> memory = cuda::allocate_scratch(device.index, bytes);
  void* data = memory.get();
  return Tensor::adopt(TensorRef(data, dtype, shape, device), std::move(memory));
}

}  // namespace tegula::ops

#include "cuda/gpu.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "cuda/reports.hpp"
#include "cuda/workspaces.hpp"
#include "runtime/machine/processors.hpp"
#include "runtime/machine/thread_pool.hpp"
#include "tegula/error.hpp"
#include "tegula/stream.hpp"

namespace tegula {

namespace cuda {
namespace {

constexpr int oldest_architecture = 80;
constexpr int release_threshold = 4;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

// The pool keeps what is freed, so that allocation is a matter of the host.
void keep_freed_memory(const Driver& driver, DeviceHandle device) {
  PoolHandle pool = nullptr;
  driver(driver.DeviceGetDefaultMemPool, &pool, device);
  std::uint64_t all = ~std::uint64_t{0};
  driver(driver.MemPoolSetAttribute, pool, release_threshold, static_cast<void*>(&all));
}

}  // namespace

int Gpu::attribute(const Driver& driver, DeviceAttribute attribute) const {
  int value = 0;
  driver(driver.DeviceGetAttribute, &value, attribute, handle_);
  return value;
}

Gpu::Gpu(const Driver& driver, int index) : driver_(driver), index_(index) {
  driver(driver.DeviceGet, &handle_, index);
  char name[256] = {};
  driver(driver.DeviceGetName, name, static_cast<int>(sizeof(name)), handle_);
  name_ = name;
  architecture_ = 10 * attribute(driver, DeviceAttribute::compute_major) +
                  attribute(driver, DeviceAttribute::compute_minor);
  if (architecture_ < oldest_architecture) {
    throw DeviceError(fmt::format("cuda:{} ({}) has compute capability {}.{}, but 8.0 or newer is needed",
                                  index, name_, architecture_ / 10, architecture_ % 10));
  }
  multiprocessors_ = attribute(driver, DeviceAttribute::multiprocessors);
  shared_limit_ = static_cast<std::size_t>(attribute(driver, DeviceAttribute::shared_bytes_optin));
  clock_khz_ = attribute(driver, DeviceAttribute::clock_khz);
  l2_bytes_ = static_cast<std::size_t>(attribute(driver, DeviceAttribute::l2_bytes));
  driver(driver.DevicePrimaryCtxRetain, &context_, handle_);
  if (attribute(driver, DeviceAttribute::memory_pools) != 0) keep_freed_memory(driver, handle_);
  reports_ = new Reports(*this);
  workspaces_ = new Workspaces(*this);
}

int Gpu::count() {
  int count = 0;
  const Driver& d = cuda::driver();
  d(d.DeviceGetCount, &count);
  return count;
}

Gpu& Gpu::get(int index) {
  static std::mutex mutex;
  // Not destroyed: when the process ends, the driver may be gone already.
  static auto& gpus = *new std::map<std::pair<const Driver*, int>, std::unique_ptr<Gpu>>;
  const Driver& driver = cuda::driver();
  const std::lock_guard lock(mutex);
  std::unique_ptr<Gpu>& gpu = gpus[{&driver, index}];
  if (!gpu) {
    if (index < 0 || index >= count()) {
      throw ArgumentError(fmt::format("there is no device cuda:{}; this machine has {}", index, count()));
    }
    gpu.reset(new Gpu(driver, index));
  }
  return *gpu;
}

CurrentContext::CurrentContext(const Gpu& gpu) : driver_(gpu.driver()) {
  ContextHandle current = nullptr;
  driver_(driver_.CtxGetCurrent, &current);
  if (current == gpu.context()) return;
  driver_(driver_.CtxPushCurrent, gpu.context());
  pushed_ = true;
}

CurrentContext::~CurrentContext() {
  ContextHandle popped = nullptr;
  if (pushed_) driver_.CtxPopCurrent(&popped);
}

}  // namespace cuda

int cuda_device_count() { return cuda::is_driver_usable() ? cuda::Gpu::count() : 0; }

int processors_of(const Device& device) {
  return device.is_cpu() ? thread_pool().size() : cuda::Gpu::get(device.index).multiprocessors();
}

}  // namespace tegula

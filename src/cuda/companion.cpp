#include "cuda/companion.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "cuda/gpu.hpp"
#include "cuda/streams.hpp"

namespace tegula::cuda {

namespace {

StreamHandle make_handle(const Gpu& gpu) {
  // One that does not block: the default stream would wait for all others. Lower numbers go first.
  constexpr unsigned non_blocking = 1;
  constexpr int urgent = -1;
  const CurrentContext current(gpu);
  StreamHandle handle = nullptr;
  driver()(driver().StreamCreateWithPriority, &handle, non_blocking, urgent);
  return handle;
}

Stream companion_of(const Stream& stream) {
  // Never destroyed: threads may still call while the process ends.
  static auto& mutex = *new std::mutex;
  static auto& handles = *new std::map<std::pair<const Gpu*, void*>, StreamHandle>;
  const Gpu& gpu = Gpu::get(stream.device().index);
  const std::lock_guard lock(mutex);
  StreamHandle& handle = handles[{&gpu, stream.handle()}];
  if (handle == nullptr) handle = make_handle(gpu);
  return Stream::wrap(handle, stream.device());
}

// A wait that is queued keeps what the event has recorded by then, so the event may go.
void order(const Stream& first, const Stream& second) {
  Event reached(first.device());
  reached.record(first);
  second.wait(reached);
}

}  // namespace

Companion::Companion(const Stream& stream) : stream_(stream), companion_(companion_of(stream)) {}

void Companion::fork() const { order(stream_, companion_); }
void Companion::join() const { order(companion_, stream_); }

}  // namespace tegula::cuda

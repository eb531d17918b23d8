#include "cuda/workspaces.hpp"

#include <algorithm>
#include <memory>

#include "codegen/cuda_program.hpp"

namespace tegula::cuda {
namespace {

constexpr std::size_t counter_bytes = 256;  // keeps the alignment of what follows
static_assert(counter_bytes >= codegen::counter_words * sizeof(int));
constexpr std::size_t smallest = std::size_t{1} << 20;
constexpr unsigned no_destructor_sync = 1;  // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
constexpr unsigned move_reference = 1;      // CU_GRAPH_USER_OBJECT_MOVE

// At least half as much again, so that growing sizes do not allocate at every call.
std::size_t rounded(std::size_t bytes, std::size_t before) {
  const std::size_t wanted = std::max({bytes, before + before / 2, smallest});
  return (wanted + smallest - 1) / smallest * smallest;
}

// Allows calls that a capture of this thread would otherwise refuse.
class RelaxedCapture {
 public:
  RelaxedCapture() { driver()(driver().ThreadExchangeStreamCaptureMode, &mode_); }
  ~RelaxedCapture() { driver().ThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CaptureMode mode_ = CaptureMode::relaxed;
};

}  // namespace

Workspaces::Place& Workspaces::place(StreamHandle stream, std::uint64_t capture) {
  const std::lock_guard lock(mutex_);
  if (capture != 0) {
    // Captures of this stream that are over.
    std::erase_if(places_, [&](const auto& entry) {
      const auto& [of_stream, of_capture] = entry.first;
      return of_stream == stream && of_capture != 0 && of_capture != capture;
    });
  }
  return places_[{stream, capture}];
}

void Workspaces::grow(Place& place, StreamHandle stream, std::size_t bytes) {
  const Driver& d = driver();
  const Block before = place.block;
  Block block{0, rounded(bytes, before.bytes)};
  // In the order of the stream: earlier kernels are done with the memory when it is freed.
  if (before.address != 0) d(d.MemFreeAsync, before.address, stream);
  place.block = {};
  d(d.MemAllocAsync, &block.address, block.bytes, stream);
  d(d.MemsetD8Async, block.address, static_cast<unsigned char>(0), counter_bytes, stream);
  place.block = block;
}

Workspaces::Block Workspaces::take_for_capture(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(free_.begin(), free_.end(), [&](const Block& block) { return block.bytes >= bytes; });
    if (found != free_.end()) {
      const Block block = *found;
      free_.erase(found);
      return block;
    }
  }
  const RelaxedCapture relaxed;
  const Driver& d = driver();
  Block block{0, rounded(bytes, 0)};
  StreamHandle aside = nullptr;
  d(d.StreamCreate, &aside, 1u);
  d(d.MemAlloc, &block.address, block.bytes);
  d(d.MemsetD8Async, block.address, static_cast<unsigned char>(0), counter_bytes, aside);
  d(d.StreamSynchronize, aside);
  d(d.StreamDestroy, aside);
  return block;
}

// A place outgrown during a capture stays the graph's: its earlier kernels use it.
void Workspaces::grow_captured(Place& place, GraphHandle graph, std::size_t bytes) {
  const Driver& d = driver();
  auto held = std::make_unique<Held>(Held{this, take_for_capture(bytes)});
  place.block = held->block;
  UserObjectHandle object = nullptr;
  d(d.UserObjectCreate, &object, static_cast<void*>(held.get()), &Workspaces::give_back, 1u,
    no_destructor_sync);
  held.release();  // the object's
  d(d.GraphRetainUserObject, graph, object, 1u, move_reference);
}

// Called by a thread of the driver, which may not call it back.
void Workspaces::give_back(void* pointer) {
  const std::unique_ptr<Held> held(static_cast<Held*>(pointer));
  const std::lock_guard lock(held->from->mutex_);
  held->from->free_.push_back(held->block);
}

Workspaces::Lease Workspaces::lease(StreamHandle stream, std::size_t bytes) {
  const Driver& d = driver();
  CaptureStatus status = CaptureStatus::none;
  std::uint64_t capture = 0;
  GraphHandle graph = nullptr;
  d(d.StreamGetCaptureInfo, stream, &status, &capture, &graph, static_cast<const void**>(nullptr),
    static_cast<std::size_t*>(nullptr));
  const bool captured = status == CaptureStatus::active;
  Place& at = place(stream, captured ? capture : 0);
  Lease lease{std::unique_lock(at.mutex), 0, 0};
  bytes += counter_bytes;
  if (at.block.bytes < bytes) {
    if (captured)
      grow_captured(at, graph, bytes);
    else
      grow(at, stream, bytes);
  }
  lease.counters = at.block.address;
  lease.memory = at.block.address + counter_bytes;
  return lease;
}

}  // namespace tegula::cuda

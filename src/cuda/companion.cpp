#include "cuda/companion.hpp"

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>

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

// Work that the stream has got already is done before it goes.
struct Owned {
  const Gpu& gpu;
  const StreamHandle handle;

  explicit Owned(const Gpu& gpu) : gpu(gpu), handle(make_handle(gpu)) {}
  ~Owned() { driver().StreamDestroy(handle); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};

class Companions {
 public:
  std::shared_ptr<const Owned> of(const Stream& stream) {
    const Gpu& gpu = Gpu::get(stream.device().index);
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) {
      return &k.own->gpu == &gpu && k.stream == stream.handle();
    });
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
    } else {
      kept_.push_front({stream.handle(), std::make_shared<const Owned>(gpu)});
      give_up_others();
    }
    return kept_.front().own;
  }

 private:
  struct Kept {
    void* stream;
    std::shared_ptr<const Owned> own;
  };

  void give_up_others() {
    for (auto last = std::prev(kept_.end()); kept_.size() > most_companions && last != kept_.begin();) {
      const auto before = std::prev(last);
      if (!Stream::wrap(last->own->handle, Device::cuda(last->own->gpu.index())).is_capturing()) kept_.erase(last);
      last = before;
    }
  }

  std::mutex mutex_;
  std::list<Kept> kept_;  // the last used first
};

std::shared_ptr<const Owned> companion_of(const Stream& stream) {
  // Never destroyed: threads may still call while the process ends.
  static auto& all = *new Companions;
  return all.of(stream);
}

// A wait that is queued keeps what the event has recorded by then, so the event may go.
void order(const Stream& first, const Stream& second) {
  Event reached(first.device());
  reached.record(first);
  second.wait(reached);
}

}  // namespace

Companion::Companion(const Stream& stream)
    : stream_(stream),
      owner_(companion_of(stream)),
      companion_(Stream::wrap(static_cast<const Owned*>(owner_.get())->handle, stream.device())) {}

void Companion::fork() const { order(stream_, companion_); }
void Companion::join() const { order(companion_, stream_); }

}  // namespace tegula::cuda

// Grids of a call that run beside others of the same call.
#pragma once
#include <optional>
#include <utility>

#include "cuda/companion.hpp"
#include "ops/schema/launch.hpp"
#include "tegula/error.hpp"

namespace tegula::ops {

// Of a call on a GPU, what run() launches waits for all that was launched before it, and what is launched
// after it does not wait for it until join() or the end of this object. So scratch that it uses is made
// outside, before this object. On other devices, work is done in the order of the program.
class Beside {
 public:
  explicit Beside(const Launch& launch) {
    const Device& device = launch.call().device();
    if (launch.runs() && !device.is_cpu()) companion_.emplace(current_stream(device));
  }
  ~Beside() {
    try {
      join();
    } catch (const DeviceError&) {
      // The device stays as it is, so the next call reports it.
    }
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  template <class F>
  void run(const F& launches) {
    if (!companion_) return launches();
    companion_->fork();
    pending_ = true;
    const StreamScope scope(companion_->stream());
    launches();
  }
  void join() {
    if (std::exchange(pending_, false)) companion_->join();
  }

 private:
  std::optional<cuda::Companion> companion_;
  bool pending_ = false;
};

}  // namespace tegula::ops

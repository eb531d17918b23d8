// For tests: ends the process with a message if some work takes too long, a kernel that hangs for
// example, which nothing else can stop.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace tegula {

class Watchdog {
 public:
  Watchdog(std::string what, std::chrono::seconds most)
      : thread_([this, what = std::move(what), most] { watch(what, most); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(const std::string& what, std::chrono::seconds most) {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, most, [this] { return done_; })) return;
    std::fprintf(stderr, "%s is not done after %lld s: giving up\n", what.c_str(),
                 static_cast<long long>(most.count()));
    std::_Exit(3);
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace tegula

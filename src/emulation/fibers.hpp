// The threads of a block as fibers of one thread of the CPU. Each runs until it waits, in random order, so a
// missing barrier leads to a wrong result.
#pragma once
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "device/emulation/threads.hpp"
#include "emulation/context.hpp"

namespace tegula::emulation {

class Fibers {
 public:
  // As many threads in each of the CTAs of a block.
  explicit Fibers(int threads, int ctas = 1);
  ~Fibers();
  Fibers(const Fibers&) = delete;

  static const TegulaThreads& functions();

  // Runs the kernel by all threads of that block; the numbers of the running one and its CTA are kept in
  // `printed`. An InternalError if they wait for each other.
  void run(TegulaKernel* kernel, const void* call, const TegulaPrinted& printed, std::uint32_t block);

 private:
  struct Fiber {
    Context context;
    void* stack = nullptr;
    int barrier = -1;                            // that it waits at
    bool (*ready)(const void* state) = nullptr;  // or what it waits for
    const void* state = nullptr;
    bool ended = false;
  };
  struct Warp {
    int arrived = 0;
    void* lanes[32];
  };

  int ctas() const { return static_cast<int>(fibers_.size()) / threads_; }
  static void start();
  static void wait(int barrier, int count);
  static void come(int barrier, int count);
  static void until(bool (*ready)(const void* state), const void* state);
  static void together(void (*f)(void** lanes), void* own);
  bool arrive(int barrier, int count);  // whether the barrier opens
  void pause(int barrier);
  [[noreturn]] void deadlock() const;

  static thread_local Fibers* current_;
  int threads_;  // of a CTA
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<int> arrived_;  // at each barrier
  Context scheduler_;
  int running_ = 0;
  int live_ = 0;
  TegulaKernel* kernel_ = nullptr;
  const void* call_ = nullptr;
};

}  // namespace tegula::emulation

#include "emulation/fibers.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "tegula/error.hpp"

namespace tegula::emulation {
namespace {

constexpr std::size_t stack_bytes = 256 * 1024;

}  // namespace

thread_local Fibers* Fibers::current_ = nullptr;

Fibers::Fibers(int threads, int ctas)
    : threads_(threads),
      fibers_(static_cast<std::size_t>(threads * ctas)),
      warps_(static_cast<std::size_t>(threads * ctas + 31) / 32) {
  arrived_.resize(static_cast<std::size_t>(tegula_first_warp_barrier) + warps_.size());
  for (Fiber& fiber : fibers_) {
    fiber.stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber.stack == MAP_FAILED) throw DeviceError("no memory for the stacks of emulated threads");
  }
}

Fibers::~Fibers() {
  for (const Fiber& fiber : fibers_) munmap(fiber.stack, stack_bytes);
}

const TegulaThreads& Fibers::functions() {
  static constexpr TegulaThreads result{wait, come, until, together};
  return result;
}

void Fibers::start() {
  Fibers& self = *current_;
  self.kernel_(self.call_);
  Fiber& fiber = self.fibers_[static_cast<std::size_t>(self.running_)];
  fiber.ended = true;
  --self.live_;
  fiber.context.switch_to(self.scheduler_);
}

void Fibers::run(TegulaKernel* kernel, const void* call, const TegulaPrinted& printed, std::uint32_t block) {
  kernel_ = kernel, call_ = call, current_ = this;
  live_ = static_cast<int>(fibers_.size());
  std::fill(arrived_.begin(), arrived_.end(), 0);
  for (Warp& warp : warps_) warp.arrived = 0;
  for (Fiber& fiber : fibers_) {
    fiber.barrier = -1, fiber.ready = nullptr, fiber.ended = false;
    fiber.context.prepare(fiber.stack, stack_bytes, start);
  }
  std::vector<int> order(fibers_.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(block));
  while (live_ > 0) {
    bool moved = false;
    for (const int thread : order) {
      Fiber& fiber = fibers_[static_cast<std::size_t>(thread)];
      if (fiber.ended || fiber.barrier >= 0 || (fiber.ready && !fiber.ready(fiber.state))) continue;
      fiber.ready = nullptr;
      moved = true;
      running_ = thread;
      *printed.number = static_cast<unsigned>(thread);
      *printed.thread = {static_cast<unsigned>(thread % threads_), 0, 0};
      *printed.block = {block * static_cast<unsigned>(ctas()) + static_cast<unsigned>(thread / threads_), 0,
                        0};
      scheduler_.switch_to(fiber.context);
    }
    if (!moved && !printed.go_on()) deadlock();
  }
}

bool Fibers::arrive(int barrier, int count) {
  int& arrived = arrived_[static_cast<std::size_t>(barrier)];
  if (++arrived < count) return false;
  arrived = 0;
  for (Fiber& fiber : fibers_) {
    if (fiber.barrier == barrier) fiber.barrier = -1;
  }
  return true;
}

void Fibers::pause(int barrier) {
  Fiber& fiber = fibers_[static_cast<std::size_t>(running_)];
  fiber.barrier = barrier;
  fiber.context.switch_to(scheduler_);
}

void Fibers::wait(int barrier, int count) {
  Fibers& self = *current_;
  // A barrier of the whole block counts the threads that have not ended.
  if (!self.arrive(barrier, count == 0 ? self.live_ : count)) self.pause(barrier);
}

void Fibers::come(int barrier, int count) { current_->arrive(barrier, count); }

void Fibers::until(bool (*ready)(const void* state), const void* state) {
  if (ready(state)) return;
  Fiber& fiber = current_->fibers_[static_cast<std::size_t>(current_->running_)];
  fiber.ready = ready, fiber.state = state;
  fiber.context.switch_to(current_->scheduler_);
}

void Fibers::together(void (*f)(void** lanes), void* own) {
  Fibers& self = *current_;
  Warp& warp = self.warps_[static_cast<std::size_t>(self.running_ / 32)];
  const int barrier = tegula_first_warp_barrier + self.running_ / 32;
  if (warp.arrived == 0) std::fill(std::begin(warp.lanes), std::end(warp.lanes), nullptr);
  warp.lanes[self.running_ % 32] = own;
  const int there = std::min(32, static_cast<int>(self.fibers_.size()) - self.running_ / 32 * 32);
  if (++warp.arrived < there) return self.pause(barrier);
  warp.arrived = 0;
  f(warp.lanes);
  for (Fiber& fiber : self.fibers_) {
    if (fiber.barrier == barrier) fiber.barrier = -1;
  }
}

void Fibers::deadlock() const {
  constexpr int most_named = 1024;
  std::string text;
  for (std::size_t i = 0, named = 0; i < fibers_.size() && named < most_named; ++i) {
    if (!fibers_[i].ended) text += fmt::format(" {}:{}", i, fibers_[i].barrier), ++named;
  }
  throw InternalError("the threads of an emulated block wait for each other (thread:barrier):" + text);
}

}  // namespace tegula::emulation

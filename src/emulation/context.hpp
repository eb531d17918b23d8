// The context of a thread of control with its own stack. Fibers are switched a million times per second, and
// swapcontext would make a system call for the signal mask each time.
#pragma once
#include <cstddef>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace tegula::emulation {

class Context {
 public:
  // Begins at `entry`, which never returns, once it is switched to.
  void prepare(void* stack, std::size_t bytes, void (*entry)());
  // Leaves the running context in this one and goes on at `next`.
  void switch_to(Context& next);

 private:
#ifdef __x86_64__
  void* top_ = nullptr;  // of the stack, which holds what a function must keep
#else
  ucontext_t place_;
#endif
};

}  // namespace tegula::emulation

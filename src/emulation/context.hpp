// Where a thread of control stands, with a stack of its own: fibers are switched a million times a second,
// and swapcontext asks the kernel each time for the mask of signals.
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

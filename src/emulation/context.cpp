#include "emulation/context.hpp"

#include <cstdint>

#ifdef __x86_64__

// (void** top, void* next): pushes the registers that a function keeps, exchanges the stacks, and takes them
// back.
extern "C" void tegula_switch_stacks(void** top, void* next);
asm(R"(
  .text
  .p2align 4
  .globl tegula_switch_stacks
  .hidden tegula_switch_stacks
  .type tegula_switch_stacks, @function
tegula_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tegula_switch_stacks, . - tegula_switch_stacks
)");

namespace tegula::emulation {

void Context::prepare(void* stack, std::size_t bytes, void (*entry)()) {
  // Six registers and the address to return to; a function finds its stack 8 bytes past a multiple of 16.
  constexpr std::size_t registers = 6, above = 2;
  auto* end = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(stack) + bytes);
  std::uintptr_t* top = end - above - registers;
  for (std::size_t i = 0; i < registers + above; ++i) top[i] = 0;
  top[registers] = reinterpret_cast<std::uintptr_t>(entry);
  top_ = top;
}

void Context::switch_to(Context& next) { tegula_switch_stacks(&top_, next.top_); }

}  // namespace tegula::emulation

#else

namespace tegula::emulation {

void Context::prepare(void* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&place_);
  place_.uc_stack.ss_sp = stack;
  place_.uc_stack.ss_size = bytes;
  place_.uc_link = nullptr;
  makecontext(&place_, entry, 0);
}

void Context::switch_to(Context& next) { swapcontext(&place_, &next.place_); }

}  // namespace tegula::emulation

#endif

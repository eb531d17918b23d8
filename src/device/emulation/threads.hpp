// Between a printed kernel that runs on the CPU and what runs its threads: one at a time, each until it
// waits.
#pragma once

struct TegulaIndex {
  unsigned x, y, z;
};

struct TegulaThreads {
  // Waits until `count` threads have come to the barrier.
  void (*wait)(int barrier, int count);
  // Comes to the barrier as one of them, and goes on.
  void (*arrive)(int barrier, int count);
  // Waits until `ready(state)`, which only other threads can bring about.
  void (*until)(bool (*ready)(const void* state), const void* state);
  // Waits for all threads of the warp; the last calls `f` with what each of them gave, in the order of lanes:
  // null where the block has no such thread.
  void (*together)(void (*f)(void** lanes), void* own);
};

// Barriers 0 … 15 are those of the block; then come those of groups of four warps, and those of warps.
constexpr int tegula_first_group_barrier = 16, tegula_first_warp_barrier = 16 + 128;

// What the printed text has: where the numbers of the running thread and its CTA go, and the thread's in its
// cluster, the shared memory of a CTA
// and behind it that of the others of its cluster, and what does one thing that the kernel has begun and not
// awaited, if there is one.
struct TegulaPrinted {
  TegulaIndex* thread;
  TegulaIndex* block;
  unsigned* number;
  unsigned char* shared;
  unsigned long shared_bytes;
  bool (*go_on)();
};
using TegulaBind = TegulaPrinted(const TegulaThreads*);
// A kernel with its one parameter.
using TegulaKernel = void(const void* call);

// Barriers in shared memory, in plain C++: they count the arrivals and bytes that they count on the chip.
#pragma once
#include "kernel.cuh"

namespace tg {

static inline unsigned char* shared_at(uint32_t address) { return shared_memory + address; }

struct EmulatedBarrier {
  int32_t bytes;
  int16_t missing;
  uint16_t arrivals : 15, phase : 1;

  void settle() {
    if (missing != 0 || bytes != 0) return;
    phase ^= 1;
    missing = int16_t(arrivals);
  }
};
static_assert(sizeof(EmulatedBarrier) == 8);
static inline EmulatedBarrier& barrier_at(uint32_t barrier) { return *(EmulatedBarrier*)shared_at(barrier); }

TG_DEVICE void barrier_init(uint32_t barrier, uint32_t arrivals) {
  barrier_at(barrier) = {0, int16_t(arrivals), uint16_t(arrivals), 0};
}
TG_DEVICE void init_fence() {}
TG_DEVICE void barrier_arrive(uint32_t barrier) {
  --barrier_at(barrier).missing;
  barrier_at(barrier).settle();
}
struct BarrierWait {
  uint32_t barrier, parity;
};
TG_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) {
  BarrierWait wait{barrier, parity};
  tegula_threads->until(
      [](const void* p) {
        const auto& w = *(const BarrierWait*)p;
        return uint32_t(barrier_at(w.barrier).phase) != w.parity;
      },
      &wait);
}
TG_DEVICE void barrier_expect(uint32_t barrier, uint32_t bytes) {
  barrier_at(barrier).bytes += int32_t(bytes);
  barrier_arrive(barrier);
}
TG_DEVICE void barrier_complete(uint32_t barrier, uint32_t bytes) {
  barrier_at(barrier).bytes -= int32_t(bytes);
  barrier_at(barrier).settle();
}
TG_DEVICE void barrier_arrive_behind_copies(uint32_t barrier) { barrier_arrive(barrier); }

}  // namespace tg

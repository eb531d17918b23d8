// What only sm_90a has: barriers that count bytes, the copy engine, products of warp groups.
#pragma once
#include "copy_engine.cuh"

namespace tg {

// ---- products of warp groups
TG_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TG_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
TG_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Ties registers to this place of the program: uses stay behind it, definitions in front.
template <int count>
TG_DEVICE void pin(float (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

// Keeps what follows behind the first `until` registers, which are not negative, so that the condition never
// holds: the compiler lifts a bare wait over arithmetic, but not over a side effect.
template <int until, int count>
TG_DEVICE void hold(const float (&r)[count]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < until; ++i) sum += r[i];
  if (sum < -1.0f) barrier_arrive(0);
}

// The place of an operand [rows, …] in shared memory whose blocks are `columns` columns wide: see TileOrder.
template <int rows, int columns>
TG_DEVICE uint64_t operand(const void* tile) {
  const uint32_t address = shared_address(tile), next_block = rows * columns * 2, next_rows = 8 * columns * 2;
  const uint32_t swizzle = columns == 64 ? 1 : columns == 32 ? 2 : 3;
  const uint64_t low = (address & 0x3ffff) >> 4 | (next_block >> 4) << 16,
                 high = next_rows >> 4 | swizzle << 30;
  return low | high << 32;
}
// How far, in units of the operand, row and column lie from its begin; both at pieces that it can begin at.
template <int rows, int columns>
TG_DEVICE constexpr uint32_t operand_step(int row, int column) {
  return ((column / columns * rows + row) * columns + column % columns) * 2 / 16;
}

}  // namespace tg

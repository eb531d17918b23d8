// Attention backward's tiles: the layout of shared memory, the order of tiles, and the two roles that move
// data: the loader and the adders of dQ.
#pragma once
#include "attention_backward_shape.cuh"
#include "ring.cuh"

constexpr u32 OFF_K = 0;
constexpr u32 OFF_V = OFF_K + KV_BYTES;
constexpr u32 OFF_Q = OFF_V + KV_BYTES;
constexpr u32 OFF_DO = OFF_Q + STAGES * Q_BYTES;
constexpr u32 OFF_DS = OFF_DO + STAGES * Q_BYTES;
constexpr u32 OFF_DQ = OFF_DS + 2 * DS_BYTES;
constexpr u32 OFF_ROWS = OFF_DQ + 2 * DQ_BYTES;
constexpr u32 OFF_BAR = OFF_ROWS + STAGES * ROW_BYTES;
constexpr u32 OFF_TILE = OFF_BAR + 8 * (2 + 4 * STAGES + 4);
constexpr u32 SMEM_BYTES = OFF_TILE + 16;
static_assert(SMEM_BYTES <= 232448, "shared memory");

struct Params {
  int s_q, s_k, heads, group, batch;  // group: query heads per kv head
  int m_blocks, n_blocks, tiles;      // tiles = batch * heads / group * n_blocks
  int section;                        // kv heads in flight together
  float scale, scale_log2;            // softmax scale; the same * log2(e)
  int* counter;                       // two ints, zero before and after each launch; one pair per stream
  u32* turn;                          // ORDERED: [batch * heads][m_blocks][2], zeroed by prepare
  float* dq;                          // [batch * heads][m_blocks][2][DQ_QUERIES / 8][128][4]
  float* rows;  // [batch * heads][m_blocks][2][BM]: lse * log2(e), +inf without keys; delta
};
struct Tile {
  int n, h, b, blocks;
};  // h: kv head; blocks: query blocks of one head, m_blocks - blocks first

DEV Tile decode(const Params& p, int t) {
  const int heads = p.heads / p.group, all = heads * p.batch;
  const int per = p.section * p.n_blocks, s = t / per, u = t - s * per;
  const int width = min(p.section, all - s * p.section);
  Tile r;
  r.n = u / width;  // causal: longest first
  const int hb = s * p.section + u - r.n * width;
  r.b = hb / heads;
  r.h = hb - r.b * heads;
  r.blocks = p.m_blocks;
#if CAUSAL
  r.blocks -= max(0, r.n * BN - (p.s_k - p.s_q)) / BM;
#endif
  return r;
}

// The loader decodes; a tile travels beside K and V.
DEV void send(u32 addr, Tile t) { store_shared_s32x4(addr, t.n, t.h, t.b, t.blocks); }
DEV Tile receive(u32 addr) {
  const int4 v = load_shared_s32x4(addr);
  return {v.x, v.y, v.z, v.w};
}

struct Barriers {
  u32 kv_full, kv_empty, q_full, q_empty, do_full, do_empty, dq_full, dq_empty;
};

// ------------------------------------------------------------------------------------------------ loader
DEV void load_tiles(const TensorMap* map_q, const TensorMap* map_k, const TensorMap* map_v,
                    const TensorMap* map_do, const Params& par, const Barriers& bar, u32 base,
                    u32 next_tile) {
  Ring ring = {0, 0};
  u32 kv_phase = 0;
  for (;;) {
    const int t = atomicAdd(par.counter, 1);
    mbar_wait(bar.kv_empty, kv_phase ^ 1);
    kv_phase ^= 1;
    if (t >= par.tiles) break;
    const Tile tile = decode(par, t);
    send(next_tile, tile);
    mbar_expect(bar.kv_full, 2 * KV_BYTES);
    tma_load_4d(base + OFF_K, map_k, bar.kv_full, 0, tile.n * BN, tile.h * (D / 64), tile.b);
    tma_load_4d(base + OFF_V, map_v, bar.kv_full, 0, tile.n * BN, tile.h * (D / 64), tile.b);
#pragma unroll 1
    for (int head = tile.h * par.group; head < (tile.h + 1) * par.group; ++head) {
      int m = par.m_blocks * BM, left = tile.blocks;
#pragma unroll 1
      do {
        m -= BM;
        const int row = (tile.b * par.heads + head) * par.m_blocks * BM + m;  // all of these are under 2^30
        const u32 q_full = bar.q_full + 8 * ring.slot, do_full = bar.do_full + 8 * ring.slot;
        mbar_wait(bar.q_empty + 8 * ring.slot, ring.phase ^ 1);
        mbar_expect(q_full, Q_BYTES + ROW_BYTES);
        tma_load_4d(base + OFF_Q + ring.slot * Q_BYTES, map_q, q_full, 0, m, head * (D / 64), tile.b);
        bulk_load(base + OFF_ROWS + ring.slot * ROW_BYTES, par.rows + 2 * row, ROW_BYTES, q_full);
        mbar_wait(bar.do_empty + 8 * ring.slot, ring.phase ^ 1);
        mbar_expect(do_full, Q_BYTES);
        tma_load_4d(base + OFF_DO + ring.slot * Q_BYTES, map_do, do_full, 0, m, head * (D / 64), tile.b);
        advance(ring);
      } while (--left > 0);
    }
  }
  send(next_tile, {-1, 0, 0, 0});
  mbar_arrive(bar.kv_full);
  if (atomicAdd(par.counter + 1, 1) == gridDim.x - 1) {
    par.counter[0] = 0;
    par.counter[1] = 0;
  }
}

// ---------------------------------------------------------------------- adder of warpgroup wg
DEV void add_dq(const Params& par, const Barriers& bar, u32 base, u32 wg, u32 next_tile) {
  const u32 staging = base + OFF_DQ + wg * DQ_BYTES, full = bar.dq_full + 8 * wg,
            empty = bar.dq_empty + 8 * wg;
  u32 kv_phase = 0, phase = 0;
  for (;;) {
    mbar_wait(bar.kv_full, kv_phase);
    kv_phase ^= 1;
    const Tile tile = receive(next_tile);
    mbar_arrive(bar.kv_empty);
    if (tile.n < 0) break;
#pragma unroll 1
    for (int g = 0; g < par.group; ++g) {
      const int head = tile.b * par.heads + tile.h * par.group + g;
      int block = (head + 1) * par.m_blocks * 2 + wg;
#pragma unroll 1
      for (int i = 0; i < tile.blocks; ++i) {
        block -= 2;
        float* dst = par.dq + (long long)block * (DQ_BYTES / 4);
        mbar_wait(full, phase);
        phase ^= 1;
#if ORDERED
        if (tile.n == 0) {
          bulk_store(dst, staging, DQ_BYTES);
        } else {
          while (load_acquire(par.turn + block) != tile.n) {}
          fence_async_global();
          bulk_add_f32(dst, staging, DQ_BYTES);
        }
#else
        bulk_add_f32(dst, staging, DQ_BYTES);
#endif
        bulk_commit();
        bulk_wait_read<0>();
        mbar_arrive(empty);
#if ORDERED
        bulk_wait<0>();
        fence_async_global();
        store_release(par.turn + block, tile.n + 1);
#endif
      }
    }
  }
  bulk_wait<0>();
}

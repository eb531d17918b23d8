// Block-sparse attention forward, bf16, head dim 128. q, o: [tokens, heads, D]; k, v: [s_k, kv heads, D].
// A tile is ROWS rows = ROWS / pack tokens x pack query heads of one group. It attends to count[kv
// head][tile] >= 1
// key blocks of 64 keys, numbered in index[kv head][tile][..]: whole blocks, no causal limit inside.
// The consumers' text is dense attention's. What differs: the list that the producer walks (two blocks a step
// at
// 128 rows, the row numbers read one step ahead), the coordinates of Q and O, the first mask.
#ifndef ROWS
#define ROWS 128  // 64: one consumer warpgroup, two CTAs per SM
#endif
#define D 128
#define BN ROWS  // keys per step
#define NWG (ROWS / 64)
#define STAGES 2
#define PINGPONG 0
#define EARLY (BN / 8)  // the wait's place made no difference here
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS (ROWS == 128 ? 232 : 216)
#include "softmax.cuh"

constexpr int THREADS = 128 * NWG + 128;
constexpr u32 OFF_K = NWG * Q_BYTES;
constexpr u32 OFF_V = OFF_K + STAGES * KV_BYTES;
constexpr u32 OFF_O = OFF_V + STAGES * KV_BYTES;
constexpr u32 OFF_BAR = OFF_O + NWG * Q_BYTES;
constexpr u32 OFF_TILE = OFF_BAR + 8 * (2 * NWG + 4 * STAGES);
constexpr u32 SMEM_BYTES = OFF_TILE + 4 * NWG;
static_assert(SMEM_BYTES <= (ROWS == 64 ? 232448 / 2 - 512 : 232448), "shared memory");

struct Params {
  int group;            // packs of one kv head
  int m_tiles, tiles;   // tiles = packs * m_tiles
  int max_index, pack;  // length of a list; query heads per tile
  float scale_log2;
  int* counter;  // two ints, zero before and after each launch; one pair per stream
  const int *index, *count;
};
struct Tile {
  int m, h, list, count, blocks;
};  // h: pack

DEV Tile decode(const Params& p, int t) {  // heads outermost: tiles in flight share K and V in the L2 cache
  Tile r;
  r.h = t / p.m_tiles;
  r.m = t - r.h * p.m_tiles;
  r.list = r.h / p.group * p.m_tiles + r.m;
  r.count = p.count[r.list];
  r.blocks = (r.count + NWG - 1) / NWG;
  return r;
}

struct Rows {
  int a, b;
};  // key rows of a step's blocks
DEV Rows rows_of(const int* list, int n, int count) {
  const int outside = 1 << 30;  // zeros, and the full byte count
  return {list[NWG * n] * 64, NWG == 2 && 2 * n + 1 < count ? list[2 * n + 1] * 64 : outside};
}

struct Loads {
  const TensorMap* map;
  u32 buffer, full, empty;
  Ring ring;
};
DEV void load(Loads& l, Rows rows, int column) {
  const u32 full = l.full + 8 * l.ring.slot, dst = l.buffer + l.ring.slot * KV_BYTES;
  mbar_wait(l.empty + 8 * l.ring.slot, l.ring.phase ^ 1);
  mbar_expect(full, KV_BYTES);
#pragma unroll
  for (int i = 0; i < D / 64; ++i) {
    tma_load_4d(dst + i * (BN * 128), l.map, full, 0, rows.a, column + i, 0);
    if (NWG == 2) tma_load_4d(dst + i * (BN * 128) + 64 * 128, l.map, full, 0, rows.b, column + i, 0);
  }
  advance(l.ring);
}

extern "C" __global__ void __launch_bounds__(THREADS, ROWS == 64 ? 2 : 1)
    block_sparse_forward(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                         const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_o,
                         const __grid_constant__ Params par) {
  extern __shared__ __align__(1024) u8 smem[];
  const u32 base = shared_address(smem);
  const u32 q_full = base + OFF_BAR, q_empty = q_full + 8 * NWG;
  const u32 k_full = q_empty + 8 * NWG, k_empty = k_full + 8 * STAGES;
  const u32 v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;
  const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    for (int i = 0; i < NWG; ++i) {
      mbar_init(q_full + 8 * i, 1);
      mbar_init(q_empty + 8 * i, 4);
    }
    for (int i = 0; i < STAGES; ++i) {
      mbar_init(k_full + 8 * i, 1);
      mbar_init(v_full + 8 * i, 1);
      mbar_init(k_empty + 8 * i, 4 * NWG);
      mbar_init(v_empty + 8 * i, 4 * NWG);
    }
    mbar_init_fence();
  }
  __syncthreads();

  if (warp >= 4 * NWG) {
    // -------------------------------------------------------------------------------------- producer
    registers_down<PRODUCER_REGISTERS>();
    if (warp == 4 * NWG && lane == 0) {
      tma_prefetch(&map_q);
      tma_prefetch(&map_k);
      tma_prefetch(&map_v);
      tma_prefetch(&map_o);
      Loads k = {&map_k, base + OFF_K, k_full, k_empty, {0, 0}},
            v = {&map_v, base + OFF_V, v_full, v_empty, {0, 0}};
      u32 q_phase = 0;
      for (int t = blockIdx.x; t < par.tiles;) {
        const int following = atomicAdd(par.counter, 1) + gridDim.x;
        const Tile tile = decode(par, t);
        const int* list = par.index + (long long)tile.list * par.max_index;
        const int column = tile.h / par.group * (D / 64);
        int n = tile.blocks - 1;
        Rows rows = rows_of(list, n, tile.count);
        load(k, rows, column);
        for (int i = 0; i < NWG; ++i) {
          const u32 full = q_full + 8 * i;
          mbar_wait(q_empty + 8 * i, q_phase ^ 1);
          store_shared(base + OFF_TILE + 4 * i, t);
          mbar_expect(full, Q_BYTES);
          tma_load_4d(base + i * Q_BYTES, &map_q, full, 0, tile.h * par.pack,
                      (tile.m * ROWS + 64 * i) / par.pack, 0);
        }
        q_phase ^= 1;
#pragma unroll 1
        for (; n > 0; --n) {
          const Rows next = rows_of(list, n - 1, tile.count);
          load(k, next, column);
          load(v, rows, column);
          rows = next;
        }
        load(v, rows, column);
        t = following;
      }
      for (int i = 0; i < NWG; ++i) {
        mbar_wait(q_empty + 8 * i, q_phase ^ 1);
        store_shared(base + OFF_TILE + 4 * i, -1);
        mbar_arrive(q_full + 8 * i);
      }
      if (atomicAdd(par.counter + 1, 1) == gridDim.x - 1) {
        par.counter[0] = 0;
        par.counter[1] = 0;
      }
    }
  } else {
    // -------------------------------------------------------------------------------------- consumers
    registers_up<CONSUMER_REGISTERS>();
    Consumer w;
    w.wg = warp / 4;
    w.lane = lane;
    w.k_full = k_full;
    w.k_empty = k_empty;
    w.v_full = v_full;
    w.v_empty = v_empty;
    w.q = wgmma_operand(base + w.wg * Q_BYTES, 16, 1024);
    w.k = wgmma_operand(base + OFF_K, 16, 1024);
    w.v = wgmma_operand(base + OFF_V, BN * 128, 1024);
    w.ring = {0, 0};
    w.scale_log2 = par.scale_log2;
    const bool leader = warp % 4 == 0 && lane == 0;
    const u32 staging = base + OFF_O + w.wg * Q_BYTES;
    u32 q_phase = 0;
    for (;;) {
      mbar_wait(q_full + 8 * w.wg, q_phase);
      q_phase ^= 1;
      const int t = load_shared(base + OFF_TILE + 4 * w.wg);
      if (t < 0) break;
      const Tile tile = decode(par, t);
      float o[D / 2];
      u32 p[BN / 4];
      Softmax r;
      int n = tile.blocks - 1;
      const int keys =
          64 * tile.count - n * BN - 2 * (lane % 4);  // of the first step, from this thread's column
      first_step(w, p, r, keys, keys);
#pragma unroll
      for (int i = 0; i < D / 2; ++i) o[i] = 0.f;
#pragma unroll 1
      for (; n > 0; --n) steady_step<false>(w, o, p, r, 0, 0);
      release(q_empty + 8 * w.wg, lane);  // the last Q K has retired
      last_step(w, o, p, r);
      stage_output(o, staging, w.wg, warp, lane, leader);
      if (leader) {
        tma_store_4d(&map_o, staging, 0, tile.h * par.pack, (tile.m * ROWS + 64 * w.wg) / par.pack, 0);
        bulk_commit();
      }
    }
    if (leader) bulk_wait_read<0>();  // shared memory must outlive the store's reads
  }
}

// Attention forward, bf16. q, o: [batch, s_q, heads, D]; k, v: [batch, s_k, heads / group, D]; lse: natural
// logarithm of the softmax denominator, f32 [batch, heads, s_q]. Causal: query i sees keys j <= i + s_k -
// s_q,
// s_q <= s_k. Lengths are any: tails of loads and stores are the tensor maps' business, of scores the first
// mask's.
//
// Persistent. Tiles of 64 * NWG queries come from a counter; the number travels beside Q. Keys run backwards,
// so
// that the block with the tail and the masked ones come first.
// Roles: NWG consumer warpgroups (64 queries each), then the producer (one thread of the last warpgroup).
#ifndef D
#define D 128  // 64 or 128
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#define BN 128    // keys per step
#define STAGES 2  // of K and of V
#if D == 128
#define NWG 2
#define PINGPONG 0
#define EARLY 6
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS 232
#else
#define NWG 3
#define PINGPONG 1  // take turns at the tensor cores: softmax is as long as the gemms
#define EARLY 4
#define PRODUCER_REGISTERS 32
#define CONSUMER_REGISTERS 160
#endif
#include "softmax.cuh"

constexpr int BM = 64 * NWG;
constexpr int THREADS = BM * 2 + 128;
constexpr u32 OFF_K = NWG * Q_BYTES;
constexpr u32 OFF_V = OFF_K + STAGES * KV_BYTES;
constexpr u32 OFF_O = OFF_V + STAGES * KV_BYTES;
constexpr u32 OFF_BAR = OFF_O + NWG * Q_BYTES;
constexpr u32 OFF_TILE = OFF_BAR + 8 * (2 * NWG + 4 * STAGES);
constexpr u32 SMEM_BYTES = OFF_TILE + 4 * NWG;
static_assert(SMEM_BYTES <= 232448, "shared memory");

struct Params {
  int s_q, s_k, heads, group, batch;  // group: query heads per kv head
  int m_tiles, tiles;                 // tiles = batch * heads * m_tiles
  int section;                        // causal: heads in flight together; their K and V stay in the L2 cache
  float scale, scale_log2;
  int* counter;  // two ints, zero before and after each launch; one pair per stream
  float* lse;
};
struct Tile {
  int m, h, b, blocks;
};

DEV Tile decode(const Params& p, int t) {
  Tile r;
#if CAUSAL
  const int per = p.section * p.m_tiles, s = t / per, u = t - s * per;
  const int width = min(p.section, p.batch * p.heads - s * p.section), q = u / width;
  const int hb = s * p.section + u - q * width;
  r.m = p.m_tiles - 1 - q;  // longest first
  const int keys = min(p.s_k, (r.m + 1) * BM + p.s_k - p.s_q);
#else
  const int hb = t / p.m_tiles, keys = p.s_k;
  r.m = t - hb * p.m_tiles;
#endif
  r.b = hb / p.heads;
  r.h = hb - r.b * p.heads;
  r.blocks = (keys + BN - 1) / BN;
  return r;
}

struct Loads {
  const TensorMap* map;
  u32 buffer, full, empty;
  Ring ring;
};
DEV void load(Loads& l, int row, int column, int b) {
  const u32 full = l.full + 8 * l.ring.slot;
  mbar_wait(l.empty + 8 * l.ring.slot, l.ring.phase ^ 1);
  mbar_expect(full, KV_BYTES);
  tma_load_4d(l.buffer + l.ring.slot * KV_BYTES, l.map, full, 0, row, column, b);
  advance(l.ring);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_forward(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
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
        const int column = tile.h / par.group * (D / 64);
        int n = tile.blocks - 1;
        load(k, n * BN, column, tile.b);
        for (int i = 0; i < NWG; ++i) {
          const u32 full = q_full + 8 * i;
          mbar_wait(q_empty + 8 * i, q_phase ^ 1);
          store_shared(base + OFF_TILE + 4 * i, t);
          mbar_expect(full, Q_BYTES);
          tma_load_4d(base + i * Q_BYTES, &map_q, full, 0, tile.m * BM + 64 * i, tile.h * (D / 64), tile.b);
        }
        q_phase ^= 1;
#pragma unroll 1
        for (; n > 0; --n) {
          load(k, (n - 1) * BN, column, tile.b);
          load(v, n * BN, column, tile.b);
        }
        load(v, 0, column, tile.b);
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
#if PINGPONG
    if (w.wg == NWG - 1) named_arrive(1, 256);  // warpgroup 0 goes first
#endif
    for (;;) {
      mbar_wait(q_full + 8 * w.wg, q_phase);
      q_phase ^= 1;
      const int t = load_shared(base + OFF_TILE + 4 * w.wg);
      if (t < 0) break;
      const Tile tile = decode(par, t);
      const int row = tile.m * BM + 64 * w.wg + 16 * (warp % 4) + lane / 4;
      int lim0 = par.s_k, lim1 = par.s_k;
#if CAUSAL
      lim0 = min(lim0, row + 1 + par.s_k - par.s_q);
      lim1 = min(lim1, row + 9 + par.s_k - par.s_q);
#endif
      lim0 -= 2 * (lane % 4);
      lim1 -= 2 * (lane % 4);
      float o[D / 2];
      u32 p[BN / 4];
      Softmax r;
      int n = tile.blocks - 1;
      first_step(w, p, r, lim0 - n * BN, lim1 - n * BN);
#pragma unroll
      for (int i = 0; i < D / 2; ++i) o[i] = 0.f;
      --n;
#if CAUSAL
      const int unmasked = (tile.m * BM + 1 + par.s_k - par.s_q) / BN;  // blocks that every query sees whole
#pragma unroll 1
      for (; n >= unmasked; --n) steady_step<true>(w, o, p, r, lim0 - n * BN, lim1 - n * BN);
#endif
#pragma unroll 1
      for (; n >= 0; --n) steady_step<false>(w, o, p, r, 0, 0);
      release(q_empty + 8 * w.wg, lane);  // the last Q K has retired
      last_step(w, o, p, r);
      if (lane % 4 == 0) {
        float* lse = par.lse + ((long long)tile.b * par.heads + tile.h) * par.s_q + row;
        const float ln2 = 0.6931471805599453f;
        if (row < par.s_q) lse[0] = fmaf(r.max0, par.scale, log2_approx(r.sum0) * ln2);
        if (row + 8 < par.s_q) lse[8] = fmaf(r.max1, par.scale, log2_approx(r.sum1) * ln2);
      }
      stage_output(o, staging, w.wg, warp, lane, leader);
      if (leader) {
        tma_store_4d(&map_o, staging, 0, tile.m * BM + 64 * w.wg, tile.h * (D / 64), tile.b);
        bulk_commit();
      }
    }
    if (leader) bulk_wait_read<0>();  // shared memory must outlive the store's reads
  }
}

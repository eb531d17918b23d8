// C = A B, bf16 operands, f32 accumulators. A [M, K] row-major; B [N, K] (B_N_MAJOR = 0) or [K, N] (1), C [M,
// N].
//
// A cluster of two CTAs owns two neighbouring 128 x BN tiles of one column: each loads its own rows of A and
// one
// half of the common B tile, which it sends to both. Persistent, static; rows of clusters in groups of
// `group`,
// so that the tiles in flight share their operands in the L2 cache.
// Roles: two consumer warpgroups (64 rows each), then the producer (one thread of the last warpgroup).
// Output through a ring of two 64-column buffers a warpgroup: stmatrix, then TMA store.
#include "sm90.cuh"

#ifndef BN
#define BN 256  // 128, 192 or 256
#endif
#ifndef B_N_MAJOR
#define B_N_MAJOR 0
#endif
#ifndef STAGES
#define STAGES 4
#endif
#define STORES (BN == 192 ? 3 : 2)  // depth of the store ring; divides the 64-column steps of a tile
#define BM 128
#define BK 64
#include "ring.cuh"

constexpr u32 A_BYTES = BM * BK * 2;
constexpr u32 B_BYTES = BN * BK * 2;
constexpr u32 C_BYTES = 64 * 64 * 2;  // one step of the store ring
constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES;
constexpr u32 OFF_C = STAGES * STAGE_BYTES;
constexpr u32 OFF_BAR = OFF_C + 2 * STORES * C_BYTES;
constexpr u32 SMEM_BYTES = OFF_BAR + 16 * STAGES;
static_assert(SMEM_BYTES <= 232448, "shared memory");
static_assert(BN / 64 % STORES == 0, "a tile must begin at buffer 0");

struct Params {
  int m_pairs, n_tiles, tiles, k_steps, group;  // tiles = m_pairs * n_tiles, counted in clusters
};
struct Tile {
  int pair, n;
};

DEV Tile decode(const Params& p, int t) {
  int per_group = p.group * p.n_tiles, g = t / per_group, u = t - g * per_group;
  int rows = min(p.group, p.m_pairs - g * p.group);
  int n = u / rows;
  return {g * p.group + u - n * rows, n};
}

// This CTA's half of the B tile, for both CTAs of the cluster
DEV void load_b(u32 dst, const TensorMap* map, u32 full, int n, int k, u32 rank) {
#if !B_N_MAJOR
  tma_load_2d_multicast(dst + rank * (B_BYTES / 2), map, full, k, n + rank * (BN / 2), 3);
#elif BN % 128 == 0
#pragma unroll
  for (int i = 0; i < BN / 128; ++i) {
    const u32 box = rank * (BN / 128) + i;
    tma_load_2d_multicast(dst + box * (BK * 128), map, full, n + 64 * box, k, 3);
  }
#else
#pragma unroll
  for (int i = 0; i < BN / 64; ++i)
    tma_load_2d_multicast(dst + i * (BK * 128) + rank * (BK / 2 * 128), map, full, n + 64 * i,
                          k + rank * (BK / 2), 3);
#endif
}

// acc (+)= A B over one stage, 64 x BN
DEV void gemm_step(float (&acc)[BN / 2], u64 a, u64 b, int add) {
#pragma unroll
  for (int i = 0; i < BK / 16; ++i) {
    const u64 ai = a + i * (32 / 16), bi = b + i * ((B_N_MAJOR ? 2048 : 32) / 16);
    if (i == 0)
      wgmma_if<0, B_N_MAJOR>(acc, ai, bi, add);
    else
      wgmma<0, B_N_MAJOR>(acc, ai, bi);
  }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_c, const __grid_constant__ Params par) {
  extern __shared__ __align__(1024) u8 smem[];
  const u32 base = shared_address(smem);
  const u32 full = base + OFF_BAR, empty = full + 8 * STAGES;
  const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const u32 rank = cluster_rank();
  const int clusters = gridDim.x / 2, first = blockIdx.x / 2;

  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      mbar_init(full + 8 * i, 1);
      mbar_init(empty + 8 * i,
                16);  // a slot is written by both CTAs: every consumer warp of both releases it
    }
    mbar_init_fence();
  }
  cluster_sync();

  if (warp >= 8) {
    // -------------------------------------------------------------------------------------- producer
    registers_down<40>();
    if (warp == 8 && lane == 0) {
      tma_prefetch(&map_a);
      tma_prefetch(&map_b);
      tma_prefetch(&map_c);
      Ring ring = {0, 0};
      for (int t = first; t < par.tiles; t += clusters) {
        const Tile tile = decode(par, t);
        const int m = (2 * tile.pair + rank) * BM, n = tile.n * BN;
        for (int k = 0; k < par.k_steps; ++k) {
          const u32 stage = base + ring.slot * STAGE_BYTES, bar = full + 8 * ring.slot;
          mbar_wait(empty + 8 * ring.slot, ring.phase ^ 1);
          mbar_expect(bar, STAGE_BYTES);
          tma_load_2d(stage, &map_a, bar, k * BK, m);
          load_b(stage + A_BYTES, &map_b, bar, n, k * BK, rank);
          advance(ring);
        }
      }
    }
  } else {
    // -------------------------------------------------------------------------------------- consumers
    registers_up<232>();
    const u32 wg = warp / 4;
    const bool leader = warp % 4 == 0 && lane == 0;
    const u64 a0 = wgmma_operand(base + wg * (64 * 128), 16, 1024);
    const u64 b0 = wgmma_operand(base + A_BYTES, B_N_MAJOR ? BK * 128 : 16, 1024);
    const u32 staging = base + OFF_C + wg * (STORES * C_BYTES);
    const u32 staging_row = staging + (16 * (warp % 4) + lane % 16) * 128;
    Ring ring = {0, 0};
    float acc[BN / 2];
    for (int t = first; t < par.tiles; t += clusters) {
      const Tile tile = decode(par, t);
      u32 last = 0;
#pragma unroll 1
      for (int k = 0; k < par.k_steps; ++k) {
        mbar_wait(full + 8 * ring.slot, ring.phase);
        wgmma_fence();
        gemm_step(acc, a0 + ring.slot * (STAGE_BYTES / 16), b0 + ring.slot * (STAGE_BYTES / 16), k);
        wgmma_commit();
        wgmma_wait<1>();  // the step before has retired: its slot goes back to both CTAs
        if (k > 0 && lane < 2) mbar_arrive_at(empty + 8 * last, lane);
        last = ring.slot;
        advance(ring);
      }
      wgmma_wait<0>();
      pin(acc);
      if (lane < 2) mbar_arrive_at(empty + 8 * last, lane);

      const int m = (2 * tile.pair + rank) * BM + 64 * wg;
#pragma unroll
      for (int c = 0; c < BN / 64; ++c) {
        const u32 buffer = c % STORES * C_BYTES;
        if (leader) bulk_wait_read<STORES - 1>();
        named_sync(1 + wg, 128);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* x = acc + 32 * c + 8 * i;
          stmatrix_x4(staging_row + buffer + ((i * 32 + lane / 16 * 16) ^ (lane % 8 * 16)),
                      pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                      pack_bf16(x[6], x[7]));
        }
        fence_async_shared();
        named_sync(1 + wg, 128);
        if (leader) {
          tma_store_2d(&map_c, staging + buffer, tile.n * BN + 64 * c, m);
          bulk_commit();
        }
      }
    }
    if (leader) bulk_wait_read<0>();
    cluster_sync();  // the other CTA may still arrive here
  }
}

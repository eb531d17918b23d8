// Attention backward, bf16, head dim 128 or 64. q, o, do, dq: [batch, s_q, heads, D]; k, v, dk, dv:
// [batch, s_k, heads / group, D]; lse: natural logarithm of the softmax denominator, f32 [batch, heads,
// s_q]. Three launches: prepare (row sums of do * o, padded lse, cleared scratch), backward, finish
// (scratch to dq).
//
// A tile is BN keys of one kv head; the loop runs over blocks of BM queries, last block first, in every
// head of the group. Scores are computed transposed (keys are rows), so that P^T and dS^T leave the
// accumulators as the A operands of dV and dK; dS also goes through shared memory, both warpgroups'
// halves, for dQ^T = K^T dS^T, whose tile the warpgroups share by columns of K (D = 128) or by queries
// (D = 64).
// dQ is summed in f32 over the tiles of different CTAs by bulk additions to a scratch tensor in the
// order of the accumulator's registers. ORDERED: blocks of keys take turns, in ascending order, so that
// dQ is bit-equal from run to run; a turn only waits for a tile with a smaller number, and numbers are
// handed out in order.
// Roles: two consumer warpgroups (64 keys each); in the last warpgroup warp 0 loads, warps 1 and 2 add
// the dQ of one consumer each.
//
// One step; the tensor cores' queue of a warpgroup below what its threads do meanwhile:
//     |   | P = exp2(S - lse) | dS = P (dP - delta) | dS to shared, barrier |    | dQ to its adder
//     | S | dP                | dV += P^T dO        | dK += dS^T Q          | dQ | (the other warpgroup's)
#include "attention_backward_rows.cuh"
#include "attention_backward_tiles.cuh"

struct Consumer {
  u64 k_rows, v_rows;         // A operands of S^T and dP^T: this warpgroup's keys
  u64 k_columns;              // A operand of dQ^T: 64 columns of K, transposed
  u64 q, d_o;                 // B operands of S^T and dP^T, slot 0
  u64 q_columns, do_columns;  // B operands of dK and dV, slot 0
  u64 ds;                     // B operand of dQ^T, buffer 0
};

DEV void gemm_scores(float (&s)[BM / 2], u64 a, u64 b) {  // 64 keys x BM queries, over D
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const u64 ai = a + (i / 4 * (BN * 128) + i % 4 * 32) / 16,
              bi = b + (i / 4 * (BM * 128) + i % 4 * 32) / 16;
    if (i == 0)
      wgmma_zero<0, 0>(s, ai, bi);
    else
      wgmma<0, 0>(s, ai, bi);
  }
}
DEV void gemm_keys(float (&acc)[D / 2], const u32 (&x)[BM / 4], u64 b) {  // 64 keys x D, over BM queries
#pragma unroll
  for (int i = 0; i < BM / 16; ++i)
    wgmma_a<1>(acc, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3], b + i * (2048 / 16));
}
DEV void gemm_dq(float (&dq)[DQ_QUERIES / 2], u64 a, u64 b) {  // 64 columns x DQ_QUERIES, over all BN keys
#pragma unroll
  for (int i = 0; i < BN / 16; ++i) {
    const u64 ai = a + i * (2048 / 16), bi = b + (i / 4 * (BM * 128) + i % 4 * 32) / 16;
    if (i == 0)
      wgmma_zero<1, 0>(dq, ai, bi);
    else
      wgmma<1, 0>(dq, ai, bi);
  }
}

// keys of the two rows see queries from lim0 / lim1 on (relative to this thread's first column)
DEV void mask(float (&s)[BM / 2], int lim0, int lim1) {
  const float hidden = __int_as_float(0xff800000);
#pragma unroll
  for (int j = 0; j < BM / 8; ++j) {
    s[4 * j + 0] = 8 * j + 0 >= lim0 ? s[4 * j + 0] : hidden;
    s[4 * j + 1] = 8 * j + 1 >= lim0 ? s[4 * j + 1] : hidden;
    s[4 * j + 2] = 8 * j + 0 >= lim1 ? s[4 * j + 2] : hidden;
    s[4 * j + 3] = 8 * j + 1 >= lim1 ? s[4 * j + 3] : hidden;
  }
}

// P = exp2(scale S - lse), rounded
DEV void probabilities(u32 (&p)[BM / 4], const float (&s)[BM / 2], float scale_log2, u32 lse) {
#pragma unroll
  for (int j = 0; j < BM / 8; ++j) {
    const float2 z = load_shared_f32x2(lse + 32 * j);
    p[2 * j] = pack_bf16(exp2_approx(fmaf(s[4 * j], scale_log2, -z.x)),
                         exp2_approx(fmaf(s[4 * j + 1], scale_log2, -z.y)));
    p[2 * j + 1] = pack_bf16(exp2_approx(fmaf(s[4 * j + 2], scale_log2, -z.x)),
                             exp2_approx(fmaf(s[4 * j + 3], scale_log2, -z.y)));
  }
}

// dS = P (dP - delta), rounded; from the rounded P, whose f32 values would not fit beside dP
DEV void score_gradients(u32 (&ds)[BM / 4], const u32 (&p)[BM / 4], const float (&dp)[BM / 2], u32 delta) {
#pragma unroll
  for (int j = 0; j < BM / 8; ++j) {
    const float2 z = load_shared_f32x2(delta + 32 * j);
    ds[2 * j] =
        pack_bf16(low_bf16(p[2 * j]) * (dp[4 * j] - z.x), high_bf16(p[2 * j]) * (dp[4 * j + 1] - z.y));
    ds[2 * j + 1] = pack_bf16(low_bf16(p[2 * j + 1]) * (dp[4 * j + 2] - z.x),
                              high_bf16(p[2 * j + 1]) * (dp[4 * j + 3] - z.y));
  }
}

// dQ of one step to this warpgroup's adder, in register order
DEV void hand_over(const float (&dq)[DQ_QUERIES / 2], u32 staging, u32 full, u32 empty, u32& phase,
                   u32 lane) {
  mbar_wait(empty, phase);
  phase ^= 1;
#pragma unroll
  for (int j = 0; j < DQ_QUERIES / 8; ++j)
    store_shared_f32x4(staging + j * 2048, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
  fence_async_shared();
  __syncwarp();
  if (lane == 0) mbar_arrive(full);
}

// 64 keys x D to rows 0..63 of a [D / 64][BN][64] swizzled tile
DEV void stage_rows(u32 row, const float (&x)[D / 2], float scale, u32 lane) {
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const float* y = x + 8 * i;
    stmatrix_x4(row + i / 4 * (BN * 128) + ((i % 4 * 32 + lane / 16 * 16) ^ (lane % 8 * 16)),
                pack_bf16(y[0] * scale, y[1] * scale), pack_bf16(y[2] * scale, y[3] * scale),
                pack_bf16(y[4] * scale, y[5] * scale), pack_bf16(y[6] * scale, y[7] * scale));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    backward(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
             const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_do,
             const __grid_constant__ TensorMap map_dk, const __grid_constant__ TensorMap map_dv,
             const __grid_constant__ Params par) {
  extern __shared__ __align__(1024) u8 smem[];
  const u32 base = shared_address(smem);
  Barriers bar;
  bar.kv_full = base + OFF_BAR;
  bar.kv_empty = bar.kv_full + 8;
  bar.q_full = bar.kv_empty + 8;
  bar.q_empty = bar.q_full + 8 * STAGES;
  bar.do_full = bar.q_empty + 8 * STAGES;
  bar.do_empty = bar.do_full + 8 * STAGES;
  bar.dq_full = bar.do_empty + 8 * STAGES;
  bar.dq_empty = bar.dq_full + 16;
  const u32 next_tile = base + OFF_TILE;
  const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    mbar_init(bar.kv_full, 1);
    mbar_init(bar.kv_empty,
              4);  // both warpgroups (their results have left the buffers), both adders (tile read)
    for (int i = 0; i < STAGES; ++i) {
      mbar_init(bar.q_full + 8 * i, 1);
      mbar_init(bar.do_full + 8 * i, 1);
      mbar_init(bar.q_empty + 8 * i, 8);
      mbar_init(bar.do_empty + 8 * i, 8);
    }
    for (int i = 0; i < 2; ++i) {
      mbar_init(bar.dq_full + 8 * i, 4);
      mbar_init(bar.dq_empty + 8 * i, 1);
    }
    mbar_init_fence();
  }
  __syncthreads();

  if (warp >= 8) {
    registers_down<24>();
    if (lane == 0) {
      if (warp == 8)
        load_tiles(&map_q, &map_k, &map_v, &map_do, par, bar, base, next_tile);
      else if (warp < 11)
        add_dq(par, bar, base, warp - 9, next_tile);
    }
  } else {
    registers_up<240>();
    const u32 wg = warp / 4;
    Consumer w;
    w.k_rows = wgmma_operand(base + OFF_K + wg * (64 * 128), 16, 1024);
    w.v_rows = wgmma_operand(base + OFF_V + wg * (64 * 128), 16, 1024);
    w.k_columns = wgmma_operand(base + OFF_K + (D == 128 ? wg * (BN * 128) : 0), 16, 1024);
    w.q = wgmma_operand(base + OFF_Q, 16, 1024);
    w.d_o = wgmma_operand(base + OFF_DO, 16, 1024);
    w.q_columns = wgmma_operand(base + OFF_Q, BM * 128, 1024);
    w.do_columns = wgmma_operand(base + OFF_DO, BM * 128, 1024);
    w.ds = wgmma_operand(base + OFF_DS + (D == 128 ? 0 : wg * (DQ_QUERIES * 128)), 16, 1024);
    const u32 ds_row = base + OFF_DS + wg * (BM * 128) + (lane % 8 + lane / 16 * 8) * 128 +
                       ((2 * (warp % 4) + lane / 8 % 2) ^ (lane % 8)) * 16;
    const u32 dq_staging = base + OFF_DQ + wg * DQ_BYTES + threadIdx.x % 128 * 16;
    Ring ring = {0, 0};
    u32 kv_phase = 0, dq_phase = 1, buffer = 0;
    for (;;) {
      mbar_wait(bar.kv_full, kv_phase);
      kv_phase ^= 1;
      const Tile tile = receive(next_tile);
      if (tile.n < 0) break;
      const int steps = par.group * tile.blocks;
      const int key = tile.n * BN + 64 * wg + 16 * (warp % 4) + lane / 4;
      int lim0 = -(1 << 30), lim1 = -(1 << 30),
          free_from = -(1 << 30);  // queries from free_from on are not masked
#if CAUSAL
      const int shift = par.s_k - par.s_q;
      lim0 = key - shift;
      lim1 = lim0 + 8;
      free_from = tile.n * BN + BN - 1 - shift;
#endif
      if (tile.n * BN + BN > par.s_k) {
        if (key >= par.s_k) lim0 = 1 << 30;
        if (key + 8 >= par.s_k) lim1 = 1 << 30;
        free_from = 1 << 30;
      }
      lim0 -= 2 * (lane % 4);
      lim1 -= 2 * (lane % 4);
      float dk[D / 2], dv[D / 2];
#pragma unroll
      for (int i = 0; i < D / 2; ++i) dk[i] = dv[i] = 0.f;

      int m = (par.m_blocks - 1) * BM;
      const int m_end = (par.m_blocks - tile.blocks) * BM;
#pragma unroll 1
      for (int it = 0; it < steps; ++it) {
        float s[BM / 2], dp[BM / 2], dq[DQ_QUERIES / 2];
        u32 p[BM / 4], ds[BM / 4];
        const u64 slot = ring.slot * (Q_BYTES / 16);
        const u32 rows = base + OFF_ROWS + ring.slot * ROW_BYTES + 8 * (lane % 4);
        mbar_wait(bar.q_full + 8 * ring.slot, ring.phase);
        wgmma_fence();
        gemm_scores(s, w.k_rows, w.q + slot);
        wgmma_commit();
        mbar_wait(bar.do_full + 8 * ring.slot, ring.phase);
        wgmma_fence();
        gemm_scores(dp, w.v_rows, w.d_o + slot);
        wgmma_commit();
        wgmma_wait<1>();  // S
        pin(s);
        if (m < free_from) mask(s, lim0 - m, lim1 - m);
        probabilities(p, s, par.scale_log2, rows);
        wgmma_fence();
        gemm_keys(dv, p, w.do_columns + slot);
        wgmma_commit();
        wgmma_wait<1>();  // dP
        pin(dp);
        score_gradients(ds, p, dp, rows + BM * 4);
        wgmma_fence();
        gemm_keys(dk, ds, w.q_columns + slot);
        wgmma_commit();
#pragma unroll
        for (int i = 0; i < BM / 16; ++i)
          stmatrix_x4_trans(ds_row + buffer * DS_BYTES + i * (16 * 128), ds[4 * i], ds[4 * i + 1],
                            ds[4 * i + 2], ds[4 * i + 3]);
        fence_async_shared();
        named_sync(
            1, 256);  // both halves of dS; the buffer's last readers passed the barrier of the step before
        wgmma_fence();
        gemm_dq(dq, w.k_columns, w.ds + buffer * (DS_BYTES / 16));
        wgmma_commit();
        wgmma_wait<0>();  // dV, dK, dQ
        pin(dq);
        buffer ^= 1;
        if (lane == 0) {
          mbar_arrive(bar.do_empty + 8 * ring.slot);
          mbar_arrive(bar.q_empty + 8 * ring.slot);
        }
        hand_over(dq, dq_staging, bar.dq_full + 8 * wg, bar.dq_empty + 8 * wg, dq_phase, lane);
        advance(ring);
        m = m == m_end ? (par.m_blocks - 1) * BM : m - BM;
      }

      // dV over V's rows, dK over K's: every reader of K has retired behind the barrier
      named_sync(1, 256);
      const u32 row = base + (64 * wg + 16 * (warp % 4) + lane % 16) * 128;
      stage_rows(row + OFF_V, dv, 1.f, lane);
      stage_rows(row + OFF_K, dk, par.scale, lane);
      fence_async_shared();
      named_sync(2 + wg, 128);
      if (warp % 4 == 0 && lane == 0) {
        const int n = tile.n * BN + 64 * wg;
        const u32 src = base + wg * (64 * 128);
#pragma unroll
        for (int i = 0; i < D / 64; ++i) {
          tma_store_4d(&map_dv, src + OFF_V + i * (BN * 128), 0, n, tile.h * (D / 64) + i, tile.b);
          tma_store_4d(&map_dk, src + OFF_K + i * (BN * 128), 0, n, tile.h * (D / 64) + i, tile.b);
        }
        bulk_commit();
        bulk_wait_read<0>();
        mbar_arrive(bar.kv_empty);
      }
    }
  }
}

// Online softmax over accumulators of 64 x BN scores, and the pipelined step of attention that it sits in.
// A thread holds rows g and g + 8 (g = lane / 4 of its warp's 16), columns 8 j + 2 (lane % 4) + {0, 1}.
// Expects D, BN, STAGES, EARLY and PINGPONG; EARLY: 8-wide blocks of exponentials in front of the wait for P
// V.
#pragma once
#include "ring.cuh"

constexpr u32 Q_BYTES = 64 * D * 2;   // a warpgroup's queries
constexpr u32 KV_BYTES = BN * D * 2;  // a stage of K or of V
#define MINUS_INF __int_as_float(0xff800000)

DEV float max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
DEV float sum_of_quad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

struct Softmax {
  float max0, max1, sum0, sum1;
};  // per row: maximum of the raw scores; this thread's partial sum
struct Shift {
  float z0, z1, f0, f1;
};  // scaled maxima; factors of what was accumulated before

// Columns from lim0 / lim1 on (counted from this thread's first) do not exist.
DEV void mask(float (&s)[BN / 2], int lim0, int lim1) {
#pragma unroll
  for (int i = 0; i < BN / 2; ++i) {
    const int column = i / 4 * 8 + i % 2;
    s[i] = column < (i % 4 < 2 ? lim0 : lim1) ? s[i] : MINUS_INF;
  }
}

template <bool FIRST, bool MASKED>
DEV Shift new_maxima(const float (&s)[BN / 2], Softmax& r, float scale_log2) {
  float even0 = s[0], odd0 = s[1], even1 = s[2], odd1 = s[3];  // four chains, to fill the pipeline
#pragma unroll
  for (int j = 1; j < BN / 8; ++j) {
    even0 = fmaxf(even0, s[4 * j]);
    odd0 = fmaxf(odd0, s[4 * j + 1]);
    even1 = fmaxf(even1, s[4 * j + 2]);
    odd1 = fmaxf(odd1, s[4 * j + 3]);
  }
  float m0 = max_of_quad(fmaxf(even0, odd0)), m1 = max_of_quad(fmaxf(even1, odd1));
  if (!FIRST) {
    m0 = fmaxf(m0, r.max0);
    m1 = fmaxf(m1, r.max1);
  }
  Shift t;
  t.z0 = (MASKED && m0 == MINUS_INF ? 0.f : m0) * scale_log2;  // a row without a key so far
  t.z1 = (MASKED && m1 == MINUS_INF ? 0.f : m1) * scale_log2;
  t.f0 = FIRST ? 0.f : exp2_approx(fmaf(r.max0, scale_log2, -t.z0));
  t.f1 = FIRST ? 0.f : exp2_approx(fmaf(r.max1, scale_log2, -t.z1));
  r.max0 = m0;
  r.max1 = m1;
  return t;
}

struct Sums {
  float even0, odd0, even1, odd1;
};

template <int FROM, int TO>
DEV void exponentials(float (&s)[BN / 2], Sums& t, const Shift& z, float scale_log2) {
#pragma unroll
  for (int j = FROM; j < TO; ++j) {
    t.even0 += s[4 * j] = exp2_approx(fmaf(s[4 * j], scale_log2, -z.z0));
    t.odd0 += s[4 * j + 1] = exp2_approx(fmaf(s[4 * j + 1], scale_log2, -z.z0));
    t.even1 += s[4 * j + 2] = exp2_approx(fmaf(s[4 * j + 2], scale_log2, -z.z1));
    t.odd1 += s[4 * j + 3] = exp2_approx(fmaf(s[4 * j + 3], scale_log2, -z.z1));
  }
}

DEV void to_operand(u32 (&p)[BN / 4], const float (&s)[BN / 2]) {
#pragma unroll
  for (int i = 0; i < BN / 4; ++i) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

DEV void scale_rows(float (&o)[D / 2], float f0, float f1) {
#pragma unroll
  for (int i = 0; i < D / 2; ++i) o[i] *= i % 4 < 2 ? f0 : f1;
}

struct Consumer {
  u32 wg, lane;
  u32 k_full, k_empty, v_full, v_empty;  // barriers of slot 0
  u64 q, k, v;                           // operands of slot 0
  Ring ring;                             // of K; V is one step behind
  float scale_log2;
};

DEV void release(u32 bar, u32 lane) {
  if (lane == 0) mbar_arrive(bar);
}

DEV void gemm_qk(float (&s)[BN / 2], const Consumer& w) {
  const u64 k = w.k + w.ring.slot * (KV_BYTES / 16);
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const u64 a = w.q + (i / 4 * (64 * 128) + i % 4 * 32) / 16,
              b = k + (i / 4 * (BN * 128) + i % 4 * 32) / 16;
    if (i == 0)
      wgmma_zero<0, 0>(s, a, b);
    else
      wgmma<0, 0>(s, a, b);
  }
  wgmma_commit();
}

DEV void gemm_pv(float (&o)[D / 2], const u32 (&p)[BN / 4], const Consumer& w, u32 slot) {
  const u64 v = w.v + slot * (KV_BYTES / 16);
#pragma unroll
  for (int i = 0; i < BN / 16; ++i)
    wgmma_a<1>(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], v + i * (2048 / 16));
  wgmma_commit();
}

// The first block: the only one with a tail. Leaves P; V stays one step behind.
DEV void first_step(Consumer& w, u32 (&p)[BN / 4], Softmax& r, int lim0, int lim1) {
  float s[BN / 2];
  mbar_wait(w.k_full + 8 * w.ring.slot, w.ring.phase);
  wgmma_fence();
  gemm_qk(s, w);
  wgmma_wait<0>();
  pin(s);
  release(w.k_empty + 8 * w.ring.slot, w.lane);
  mask(s, lim0, lim1);
  Sums t = {0.f, 0.f, 0.f, 0.f};
  const Shift z = new_maxima<true, true>(s, r, w.scale_log2);
  exponentials<0, BN / 8>(s, t, z, w.scale_log2);
  r.sum0 = t.even0 + t.odd0;
  r.sum1 = t.even1 + t.odd1;
  to_operand(p, s);
}

// Q K of this block and P V of the one before run together; softmax runs under P V.
template <bool MASKED>
DEV void steady_step(Consumer& w, float (&o)[D / 2], u32 (&p)[BN / 4], Softmax& r, int lim0, int lim1) {
  float s[BN / 2];
  const Ring v = w.ring;
  advance(w.ring);
  mbar_wait(w.k_full + 8 * w.ring.slot, w.ring.phase);
#if PINGPONG
  named_sync(1 + w.wg, 256);
#endif
  wgmma_fence();
  gemm_qk(s, w);
  mbar_wait(w.v_full + 8 * v.slot, v.phase);
  wgmma_fence();
  gemm_pv(o, p, w, v.slot);
#if PINGPONG
  named_arrive(1 + (w.wg + 1 == NWG ? 0 : w.wg + 1), 256);
#endif
  wgmma_wait<1>();  // S
  pin(s);
  release(w.k_empty + 8 * w.ring.slot, w.lane);
  if (MASKED) mask(s, lim0, lim1);
  Sums t = {0.f, 0.f, 0.f, 0.f};
  const Shift z = new_maxima<false, MASKED>(s, r, w.scale_log2);
  exponentials<0, EARLY>(s, t, z, w.scale_log2);
  // Never true: terms of a sum of exponentials. ptxas lifts a bare wait over pure arithmetic, not over a side
  // effect.
  if (EARLY < BN / 8 && z.f0 + z.f1 + t.even0 + t.odd0 + t.even1 + t.odd1 < -1.f) mbar_arrive(w.k_full);
  wgmma_wait<0>();  // O
  pin(o);
  release(w.v_empty + 8 * v.slot, w.lane);
  exponentials<EARLY, BN / 8>(s, t, z, w.scale_log2);
  r.sum0 = fmaf(r.sum0, z.f0, t.even0 + t.odd0);
  r.sum1 = fmaf(r.sum1, z.f1, t.even1 + t.odd1);
  to_operand(p, s);
  scale_rows(o, z.f0, z.f1);
}

// The last P V, then O / sum. Returns the sums of both rows in r.
DEV void last_step(Consumer& w, float (&o)[D / 2], const u32 (&p)[BN / 4], Softmax& r) {
  mbar_wait(w.v_full + 8 * w.ring.slot, w.ring.phase);
  wgmma_fence();
  gemm_pv(o, p, w, w.ring.slot);
  r.sum0 = sum_of_quad(r.sum0);
  r.sum1 = sum_of_quad(r.sum1);
  const float i0 = r.sum0 == 0.f ? 0.f : reciprocal(r.sum0), i1 = r.sum1 == 0.f ? 0.f : reciprocal(r.sum1);
  wgmma_wait<0>();
  pin(o);
  release(w.v_empty + 8 * w.ring.slot, w.lane);
  advance(w.ring);
  scale_rows(o, i0, i1);
}

// O to this warpgroup's staging tile [D / 64][64][64]; the caller's one thread stores it when this returns.
DEV void stage_output(const float (&o)[D / 2], u32 staging, u32 wg, u32 warp, u32 lane, bool leader) {
  if (leader) bulk_wait_read<0>();  // the tile before has left
  named_sync(8 + wg, 128);
  const u32 row = staging + (16 * (warp % 4) + lane % 16) * 128;
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const float* x = o + 8 * i;
    stmatrix_x4(row + i / 4 * (64 * 128) + ((i % 4 * 32 + lane / 16 * 16) ^ (lane % 8 * 16)),
                pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7]));
  }
  fence_async_shared();
  named_sync(8 + wg, 128);
}

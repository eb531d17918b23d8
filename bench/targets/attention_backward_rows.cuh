// Attention backward's launches before and after: row sums and cleared scratch; scratch to dq.
#pragma once
#include "attention_backward_shape.cuh"

struct RowParams {
  int s_q, heads, m_blocks;
  float scale;
  const u16 *o, *d_o;
  const float* lse;
  float *rows, *dq;
  u32* turn;
  u16* dq_out;
};

DEV float dot_bf16x2(u32 x, u32 y, float acc) {
  return fmaf(high_bf16(x), high_bf16(y), fmaf(low_bf16(x), low_bf16(y), acc));
}

// Block (m, batch * heads + head): PARTS threads a row
constexpr int PARTS = D / 8;
extern "C" __global__ void __launch_bounds__(256) prepare(const __grid_constant__ RowParams p) {
  const int head = blockIdx.y % p.heads, b = blockIdx.y / p.heads, part = threadIdx.x % PARTS;
  const long long block = (long long)blockIdx.y * p.m_blocks + blockIdx.x;
#pragma unroll
  for (int r = threadIdx.x / PARTS; r < BM; r += 256 / PARTS) {
    const int q = blockIdx.x * BM + r;
    float sum = 0.f;
    if (q < p.s_q) {
      const long long at = (((long long)b * p.s_q + q) * p.heads + head) * D + 8 * part;
      const uint4 x = *(const uint4*)(p.o + at), y = *(const uint4*)(p.d_o + at);
      sum = dot_bf16x2(x.x, y.x, dot_bf16x2(x.y, y.y, dot_bf16x2(x.z, y.z, dot_bf16x2(x.w, y.w, 0.f))));
    }
#pragma unroll
    for (int i = PARTS / 2; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
    if (part == 0) {
      const float inf = __int_as_float(0x7f800000);
      const float lse = q < p.s_q ? p.lse[(long long)blockIdx.y * p.s_q + q] : inf;
      p.rows[block * 2 * BM + r] = lse == -inf ? inf : lse * 1.4426950408889634f;
      p.rows[block * 2 * BM + BM + r] = sum;
    }
  }
#if ORDERED
  if (threadIdx.x < 2) p.turn[block * 2 + threadIdx.x] = 0;
#else
  float4* dq = (float4*)(p.dq + block * (BM * D));
#pragma unroll
  for (int i = threadIdx.x; i < BM * D / 4; i += 256) dq[i] = make_float4(0.f, 0.f, 0.f, 0.f);
#endif
}

// Scratch in accumulator order -> rows of dq, scaled
extern "C" __global__ void __launch_bounds__(256) finish(const __grid_constant__ RowParams p) {
  __shared__ __align__(16) float tile[BM][D + 4];
  const int head = blockIdx.y % p.heads, b = blockIdx.y / p.heads;
  const long long block = (long long)blockIdx.y * p.m_blocks + blockIdx.x;
  const float4* src = (const float4*)(p.dq + block * (BM * D));
#pragma unroll
  for (int i = threadIdx.x; i < BM * D / 4; i += 256) {
    const float4 x = src[i];
    const int t = i % 128, j = i / 128 % (DQ_QUERIES / 8), wg = i / 128 / (DQ_QUERIES / 8);
    const int column = (D == 128 ? 64 * wg : 0) + 16 * (t / 32) + t % 32 / 4;
    const int row = (D == 128 ? 0 : DQ_QUERIES * wg) + 8 * j + t % 4 * 2;
    tile[row][column] = x.x;
    tile[row + 1][column] = x.y;
    tile[row][column + 8] = x.z;
    tile[row + 1][column + 8] = x.w;
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < BM * D / 8; i += 256) {
    const int r = i / PARTS, part = i % PARTS, q = blockIdx.x * BM + r;
    if (q >= p.s_q) continue;
    const float4 x = *(const float4*)&tile[r][8 * part], y = *(const float4*)&tile[r][8 * part + 4];
    const uint4 packed = {pack_bf16(x.x * p.scale, x.y * p.scale), pack_bf16(x.z * p.scale, x.w * p.scale),
                          pack_bf16(y.x * p.scale, y.y * p.scale), pack_bf16(y.z * p.scale, y.w * p.scale)};
    *(uint4*)(p.dq_out + (((long long)b * p.s_q + q) * p.heads + head) * D + 8 * part) = packed;
  }
}

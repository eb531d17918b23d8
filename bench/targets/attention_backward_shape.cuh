// Attention backward's sizes, which the build may choose.
#pragma once
#include "sm90.cuh"

#ifndef D
#define D 128
#endif
#ifndef BM
#define BM (D == 128 ? 80 : 128)  // queries per step; 64 or 80, 128 at D = 64
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef ORDERED
#define ORDERED 0
#endif
#define BN 128
#define STAGES 2
#define THREADS 384

constexpr u32 KV_BYTES = BN * D * 2;
constexpr u32 Q_BYTES = BM * D * 2;
constexpr u32 DS_BYTES = BM * BN * 2;
constexpr int DQ_QUERIES = D == 128 ? BM : BM / 2;  // a warpgroup's part of dQ^T: 64 columns of these queries
constexpr u32 DQ_BYTES = DQ_QUERIES * 64 * 4;
constexpr u32 ROW_BYTES = BM * 8;  // lse and delta of a block

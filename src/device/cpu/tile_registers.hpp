// Products of bf16 by the tile registers of AMX.
//
// A tile register holds 16 rows of 64 bytes. Of A that is 16 rows of 32 values, of B 16 pairs of rows of k by
// 16 columns, both values of a pair side by side; a step is the product of two such tiles.
#pragma once
#include "pack.hpp"

TEGULA_CPU_BEGIN

constexpr long tile_rows = 16, tile_step = 32, tile_bytes = 1024;
constexpr long tile_steps(long k) { return (k + tile_step - 1) / tile_step; }

// Operand A: a tile, or rows of a tensor that tile registers read where they are; null if these are in the
// tile.
struct PlacedRows {
  const float* tile;
  const bf16* rows;
  long stride;
};
TEGULA_CPU_INLINE const float* tile_of(const float* a) { return a; }
TEGULA_CPU_INLINE const float* tile_of(const PlacedRows& a) { return a.tile; }

// Where complete sums go, in place of C; null: nowhere else.
template <class S>
struct Leaving {
  static constexpr bool possible = true;
  S* to;
  long stride;
};
struct NoneLeaving {
  static constexpr bool possible = false;
};

#if TEGULA_CPU_W == 16

// Registers 0 to 3 hold 2 x 2 tiles of C, 4 and 5 A, 6 and 7 B.

#define TEGULA_CPU_WITH_TILES __attribute__((target("amx-tile,amx-bf16")))
#define TEGULA_CPU_TILE(instruction, p, stride) \
  asm volatile(instruction : : "r"(p), "r"((long)(stride)) : "memory")
#define TEGULA_CPU_LOAD_TILE(tile, p, stride) TEGULA_CPU_TILE("tileloadd (%0,%1,1), %%tmm" #tile, p, stride)
#define TEGULA_CPU_STORE_TILE(tile, p, stride) \
  TEGULA_CPU_TILE("tilestored %%tmm" #tile ", (%0,%1,1)", p, stride)
#define TEGULA_CPU_CLEAR_TILE(tile) asm volatile("tilezero %%tmm" #tile : :)
#define TEGULA_CPU_MULTIPLY(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

// Rows of the tiles of A and C above and below; tiles of B are full.
TEGULA_CPU_WITH_TILES TEGULA_CPU_SHARED void configure_tiles(int above, int below) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } config = {1, 0, {}, {}, {}};
  const int rows[8] = {above, above, below, below, above, below, 16, 16};
  for (int i = 0; i < 8; ++i) {
    config.bytes[i] = rows[i] > 0 ? 64 : 0;
    config.rows[i] = uint8_t(rows[i]);
  }
  asm volatile("ldtilecfg %0" : : "m"(config));
}
TEGULA_CPU_WITH_TILES TEGULA_CPU_SHARED void release_tiles() { asm volatile("tilerelease" : :); }

// The 16 rows of a tile of A, of 64 bytes; how far the next row, the next step and the next 16 rows are.
struct TilesOfA {
  const char* at;
  long row, step, below;
};
TEGULA_CPU_INLINE TilesOfA packed_tiles(const char* at, long steps) {
  return {at, 64, tile_bytes, steps * tile_bytes};
}
TEGULA_CPU_INLINE TilesOfA tiles_in_place(const float* a, long steps) {
  return packed_tiles((const char*)a, steps);
}
TEGULA_CPU_INLINE TilesOfA tiles_in_place(const PlacedRows& a, long steps) {
  if (a.rows == nullptr) return tiles_in_place(a.tile, steps);
  const long bytes = a.stride * 2;
  return {(const char*)a.rows, bytes, 64, tile_rows * bytes};
}

// Sums of one or two tiles of rows by one or two of columns, and the distance of their rows.
struct Sums {
  float* at;
  long row;
};

// One or two tiles of rows by one or two of columns, over all steps, of packed tiles of A. What is a constant
// here is none in the next function, which is a tenth slower.
template <bool Below, bool Right>
TEGULA_CPU_WITH_TILES TEGULA_CPU_SHARED void multiply_tiles(long steps, const char* a, const char* b,
                                                            float* c, long ldc, bool accumulate) {
  const long bytes = ldc * 4;
  float* const below = c + tile_rows * ldc;
  if (accumulate) {
    TEGULA_CPU_LOAD_TILE(0, c, bytes);
    if constexpr (Right) TEGULA_CPU_LOAD_TILE(1, c + W, bytes);
    if constexpr (Below) TEGULA_CPU_LOAD_TILE(2, below, bytes);
    if constexpr (Below && Right) TEGULA_CPU_LOAD_TILE(3, below + W, bytes);
  } else {
    TEGULA_CPU_CLEAR_TILE(0);
    if constexpr (Right) TEGULA_CPU_CLEAR_TILE(1);
    if constexpr (Below) TEGULA_CPU_CLEAR_TILE(2);
    if constexpr (Below && Right) TEGULA_CPU_CLEAR_TILE(3);
  }
  const char* a_below = a + steps * tile_bytes;
  for (; steps > 0; --steps) {
    TEGULA_CPU_LOAD_TILE(6, b, 64);
    TEGULA_CPU_LOAD_TILE(4, a, 64);
    TEGULA_CPU_MULTIPLY(0, 4, 6);
    if constexpr (Below) {
      TEGULA_CPU_LOAD_TILE(5, a_below, 64);
      TEGULA_CPU_MULTIPLY(2, 5, 6);
    }
    if constexpr (Right) {
      TEGULA_CPU_LOAD_TILE(7, b + tile_bytes, 64);
      TEGULA_CPU_MULTIPLY(1, 4, 7);
      if constexpr (Below) TEGULA_CPU_MULTIPLY(3, 5, 7);
    }
    a += tile_bytes;
    a_below += tile_bytes;
    b += (Right ? 2 : 1) * tile_bytes;
  }
  TEGULA_CPU_STORE_TILE(0, c, bytes);
  if constexpr (Right) TEGULA_CPU_STORE_TILE(1, c + W, bytes);
  if constexpr (Below) TEGULA_CPU_STORE_TILE(2, below, bytes);
  if constexpr (Below && Right) TEGULA_CPU_STORE_TILE(3, below + W, bytes);
}

// The same from wherever A is to elsewhere than C, to which it adds.
template <bool Below, bool Right>
TEGULA_CPU_WITH_TILES TEGULA_CPU_SHARED void multiply_apart(long steps, TilesOfA a, const char* b, Sums from,
                                                            Sums to, bool accumulate) {
  if (accumulate) {
    const long bytes = from.row * 4;
    const float* const below = from.at + tile_rows * from.row;
    TEGULA_CPU_LOAD_TILE(0, from.at, bytes);
    if constexpr (Right) TEGULA_CPU_LOAD_TILE(1, from.at + W, bytes);
    if constexpr (Below) TEGULA_CPU_LOAD_TILE(2, below, bytes);
    if constexpr (Below && Right) TEGULA_CPU_LOAD_TILE(3, below + W, bytes);
  } else {
    TEGULA_CPU_CLEAR_TILE(0);
    if constexpr (Right) TEGULA_CPU_CLEAR_TILE(1);
    if constexpr (Below) TEGULA_CPU_CLEAR_TILE(2);
    if constexpr (Below && Right) TEGULA_CPU_CLEAR_TILE(3);
  }
  // All loads of a step come before its products.
  for (; steps > 0; --steps) {
    TEGULA_CPU_LOAD_TILE(6, b, 64);
    TEGULA_CPU_LOAD_TILE(4, a.at, a.row);
    if constexpr (Below) TEGULA_CPU_LOAD_TILE(5, a.at + a.below, a.row);
    if constexpr (Right) TEGULA_CPU_LOAD_TILE(7, b + tile_bytes, 64);
    TEGULA_CPU_MULTIPLY(0, 4, 6);
    if constexpr (Below) TEGULA_CPU_MULTIPLY(2, 5, 6);
    if constexpr (Right) TEGULA_CPU_MULTIPLY(1, 4, 7);
    if constexpr (Below && Right) TEGULA_CPU_MULTIPLY(3, 5, 7);
    a.at += a.step;
    b += (Right ? 2 : 1) * tile_bytes;
  }
  const long bytes = to.row * 4;
  float* const below = to.at + tile_rows * to.row;
  TEGULA_CPU_STORE_TILE(0, to.at, bytes);
  if constexpr (Right) TEGULA_CPU_STORE_TILE(1, to.at + W, bytes);
  if constexpr (Below) TEGULA_CPU_STORE_TILE(2, below, bytes);
  if constexpr (Below && Right) TEGULA_CPU_STORE_TILE(3, below + W, bytes);
}

// The same for a panel's rows from `i` on. Sums that leave are in the first-level cache when they are
// rounded.
template <int Rows, bool Right, class Leaves>
TEGULA_CPU_TEMPLATE void multiply_rows(long steps, const TilesOfA& a, long i, const char* b, Sums c,
                                       bool accumulate, Leaves leaving) {
  constexpr bool below = Rows > tile_rows;
  const TilesOfA own = {a.at + i / tile_rows * a.below, a.row, a.step, a.below};
  const Sums sums = {c.at + i * c.row, c.row};
  if constexpr (Leaves::possible) {
    if (leaving.to != nullptr) {
      alignas(64) float block[2 * tile_rows * NR];
      multiply_apart<below, Right>(steps, own, b, sums, {block, NR}, accumulate);
      for (long row = 0; row < Rows; ++row) {
        auto* const to = leaving.to + (i + row) * leaving.stride;
        store(to, load(block + row * NR));
        if constexpr (Right) store(to + W, load(block + row * NR + W));
      }
      return;
    }
  }
  if (a.row == 64) return multiply_tiles<below, Right>(steps, own.at, b, sums.at, sums.row, accumulate);
  multiply_apart<below, Right>(steps, own, b, sums, sums, accumulate);
}

#undef TEGULA_CPU_WITH_TILES
#undef TEGULA_CPU_TILE
#undef TEGULA_CPU_LOAD_TILE
#undef TEGULA_CPU_STORE_TILE
#undef TEGULA_CPU_CLEAR_TILE
#undef TEGULA_CPU_MULTIPLY

#endif

TEGULA_CPU_END

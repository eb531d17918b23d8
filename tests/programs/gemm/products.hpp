// What the programs with products share: their tiles, the usual loop over the inner dimension, and the
// formula.
#pragma once
#include "tests/programs/program.hpp"

namespace programs {

struct GemmTile {
  int m, n, k;
};
inline const GemmTile small_tile{64, 64, 64}, large_tile{128, 256, 64};

// acc += A[m0 …, steps] · B[n0 …, steps]ᵀ; A is [M, K], B [N, K].
inline void multiply(Fragment& acc, const Tensor& A, const Tensor& B, const Expr& m0, const Expr& n0,
                     const Range& steps, const GemmTile& t) {
  pipelined(steps, {.stages = 4}, [&](Index k) {
    Shared a({t.m, t.k}, A.type()), b({t.n, t.k}, B.type());
    copy(A.at(m0, k * t.k), a);
    copy(B.at(n0, k * t.k), b);
    gemm(a, b.T(), acc);
  });
}
inline Range steps_of(const Expr& K, const GemmTile& t) { return range(0, ceildiv(K, t.k)); }

// The group of a tile of rows and the tile's first row in it, where group g has the rows first[g] … first[g +
// 1]. The group −1 stands for tiles that no group has: there are ceildiv(M, rows of a tile) + groups tiles at
// most.
struct GroupTile {
  Var group = -1, row = 0;

  GroupTile(const Tensor& first, const Expr& tile, int rows) {
    Var before = 0;
    serial(first.extent(0) - 1, [&](Index g) {
      Expr tiles = ceildiv(first(g + 1) - first(g), rows);
      when(tile >= before && tile < before + tiles, [&] {
        group = g;
        row = (tile - before) * rows;
      });
      before += tiles;
    });
  }
};

// a [m, k] · b [n, k]ᵀ.
inline Numbers product_of(const Numbers& a, const Numbers& b) {
  const auto depth = a.shape[1];
  Numbers c({a.shape[0], b.shape[0]});
  each(a.shape[0], b.shape[0],
       [&](int i, int j) { c(i, j) = sum_of(depth, [&](int k) { return a(i, k) * b(j, k); }); });
  return c;
}

inline Data rows_of(const Data& x, int begin, int end) { return x.slice(0, begin, end); }

// Puts `rows` into rows first … of `whole`.
inline void put_rows(const Numbers& rows, Numbers& whole, int first) {
  each(rows.shape[0], rows.shape[1], [&](int i, int j) { whole(first + i, j) = rows(i, j); });
}

}  // namespace programs

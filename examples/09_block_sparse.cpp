// Lesson 9: block sparsity. A block of the grid visits only the tiles in its list: the loop runs over the
// list, and the position of a tile is read from memory. Nothing else changes, and loads still run ahead.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// C = A B, where whole blocks of A are zero and are not stored: block row r has the block columns
// columns[begin[r]] to columns[begin[r + 1] − 1]. `compact` holds these blocks one after another (BSR).
Kernel block_sparse_product(int block, int n) {
  return kernel("block_sparse_product", [&] {
    Dim Ends("ends"), S("stored"), K("K"), N("N");
    Tensor compact = input("compact", {S, block, block}, f32), B = input("B", {K, N}, f32);
    Tensor begin = input("begin", {Ends}, i32), columns = input("columns", {S}, i32);
    Tensor C = output("C", {(Ends - 1) * block, N}, f32);
    grid(ceildiv(N, n), Ends - 1, [&](Index bx, Index row) {
      Fragment sum({block, n}, f32, 0);
      pipelined(range(begin(row), begin(row + 1)), {.stages = 3}, [&](Index entry) {
        Shared a({block, block}, f32), b({block, n}, f32);
        copy(compact.slice(entry).at(0), a);
        copy(B.at(columns(entry) * block, bx * n), b);
        gemm(a, b, sum);
      });
      copy(sum, C.at(row * block, bx * n));  // a row without blocks stores zeros
    });
  });
}

TEGULA_KERNELS(block_sparse_product(16, 32))  // what `tegula show` and tegula.load() find here

int main() {
  constexpr int block = 16, rows = 4, k = 5 * block, n = 50;
  std::vector<int> begin = {0, 3, 5, 5, 6}, columns = {0, 1, 4, 2, 3, 4};
  auto compact = tegula::Tensor::random_integers({6, block, block}, f32, 1, -4, 5),
       b = tegula::Tensor::random_integers({k, n}, f32, 2, -4, 5);
  auto c = tegula::Tensor::empty({rows * block, n}, f32),
       expected = tegula::Tensor::zeros({rows * block, n}, f32);
  tegula::compile(block_sparse_product(block, 32))(compact, b, tegula::Tensor::from(begin),
                                                   tegula::Tensor::from(columns), c);
  for (int r = 0; r < rows; ++r)
    for (int e = begin[r]; e < begin[r + 1]; ++e)
      for (int i = 0; i < block; ++i)
        for (int j = 0; j < n; ++j) {
          double sum = expected.get({r * block + i, j});
          for (int p = 0; p < block; ++p) sum += compact.get({e, i, p}) * b.get({columns[e] * block + p, j});
          expected.set({r * block + i, j}, sum);
        }
  check("block_sparse_product", c, expected, 0);
}

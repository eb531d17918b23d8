// Building blocks of programs over rows of features.
#pragma once
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// 1 / sqrt(mean(x²) + eps) of every row of x [rows, features].
lang::Fragment root_mean_square_factors(const lang::Fragment& x, const lang::Expr& eps);

// total [n] = the sum of partial sums [blocks, n], added in a fixed order by a grid of its own: sums over all
// blocks of a grid that are the same at every call. Several of the same length share the grid.
struct PartialSums {
  lang::Tensor partials, total;
};
// A block has this many rows of the partial sums at a time, of as many columns as make up a tile.
inline constexpr int many_partials = 128, few_partials = 16;
void add_partials(const std::vector<PartialSums>& sums, int rows = many_partials);
void add_partials(const lang::Tensor& partials, const lang::Tensor& total);

// How rows that are read twice are divided: a GPU's second-level cache shall hold the rows of all blocks, so
// that the second reading finds them there, and few blocks of many threads share a processor where rows are
// long. The second reading goes from the end to the beginning: what was read last is there for certain.
struct LongRows {
  int piece = 4096, threads = 0;
  // Pieces that shared memory has room for, which the second reading then finds there.
  std::optional<int> kept = {};
  bool whole = false;  // rows are a multiple of pieces: their programs promise it
  bool sums_of_rows = false;  // each piece adds to one sum of its row: on a CPU
  auto fields() const {
    return std::tuple(joined("p", piece, threads), labelled("kept", kept), labelled("whole", whole),
                      labelled("sums", sums_of_rows));
  }
  int stages() const { return kept.value_or(3); }
  // The extent of rows, by this name in programs.
  lang::Dim features(const char* name) const;
};
// `tensors` are read together.
LongRows divided_rows(std::int64_t row_bytes, bool on_gpu, int tensors = 1);

// Sums of exponentials along a row that is read in pieces. On a GPU each thread has sums of its own, over
// runs of neighbours that it holds, or each column of a piece; on a CPU the row has one, and a piece is read
// for its largest element first. Elements of -inf count as 0.
struct ExponentialSums {
  int run;  // columns that share sums
  lang::Fragment top, sum;
  std::optional<lang::Fragment> along;  // exponentials times weights

  ExponentialSums(const LongRows& rows, DType type, bool weighted = false);
  // x is used up.
  void add(lang::Fragment& x, const lang::Fragment* weights = nullptr);
  // Once the row is over: the largest element, the sum of exp(x - largest), and of that times the weights.
  struct Total {
    lang::Expr largest, sum, along;
    lang::Expr lse() const { return largest + log(sum); }
  };
  Total total();

 private:
  void add_columns(const lang::Fragment& x, const lang::Fragment* weights);
  void add_row(const lang::Fragment& x, const lang::Fragment* weights);
  bool of_row_;
};
// x [batch, rows, n] gives total [n], in the same order at every call.
struct RowSumKernel {
  DType type = f32;
  auto fields() const { return std::tuple(type); }
};
lang::Kernel row_sum_kernel(const RowSumKernel& c);

}  // namespace tegula::ops

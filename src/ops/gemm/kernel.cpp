#include "ops/gemm/kernel.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "ops/pieces/padding.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/tf32_operands.hpp"
#include "ops/products/operand_tile.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;  // not that of the runtime

namespace {

// Elements and columns of a block that adds the split sums: few elements, so that there are blocks for all
// processors, and for matrices with few columns no more than a tile has.
constexpr int summed_elements = 1024;
int summed_columns(const GemmTiles& t) { return t.n < warp_group_rows ? t.n : 256; }
int summed_rows(const GemmTiles& t) { return std::max(1, summed_elements / summed_columns(t)); }

// The sums of a tile, and if gated those of the columns that its gates multiply.
using Sums = std::vector<Fragment>;

// The tile program. Where k is split, or the copy engine does not take the result's rows, blocks of a first
// grid leave sums of their parts of k, and those of a second add them in order.
struct Program {
  const GemmKernel& c;
  const GemmTiles& t = c.tiles;
  Dim batch{"batch"}, m{"m"}, n{"n"}, k{"k"};
  Expr columns = c.gated ? n / 2 : Expr(n);  // of the result
  Tensor a = c.transpose_a ? input("a", {batch, k, m}, c.type) : input("a", {batch, m, k}, c.type);
  Tensor b = c.transpose_b ? input("b", {batch, n, k}, c.type) : input("b", {batch, k, n}, c.type);
  Tensor out =
      c.accumulates ? inout("out", {batch, m, columns}, c.out) : output("out", {batch, m, columns}, c.out);
  EpilogueInputs epilogue{c.epilogue, m, n};
  Tensor residual = c.residual ? input("residual", {batch, m, columns}, *c.residual) : out;
  bool transpose_a = c.transpose_a, transpose_b = c.transpose_b;   // of what is multiplied
  bool divided = c.precision == Precision::tf32x3 && c.prepare_a;  // into two parts, of which both are read
  std::optional<Expr> out_scale;
  std::optional<Tensor> partial;

  explicit Program(const GemmKernel& instance) : c(instance) {
    if (c.rescaled) out_scale.emplace(scalar("out_scale", f32));
    const int piece = bytes_of_piece / f32.bytes();
    if (t.splits > 1 || c.pad_out)
      partial.emplace(workspace("partial", {t.splits, batch, m, ceildiv(n, piece) * piece}, f32));
  }

  void run() {
    if (c.pad_a) a = padded("padded_a", a);
    if (c.pad_b) b = padded("padded_b", b);
    prepare();
    if (partial) {
      split_grid();
      sum_grid();
    } else {
      whole_grid();
    }
  }

  // A tile of the result.
  struct Place {
    Expr matrix, row, column;
  };
  // Of the product: the second half are the columns that gates multiply.
  Expr column_of(const Place& at, std::size_t half) const {
    return half == 0 ? at.column : columns + at.column;
  }
  // Steps of a product over all of k: three times as many if operands are split.
  Expr steps() const { return divided ? ceildiv(k, t.k) * 3 : ceildiv(k, t.k); }
  struct Step {
    Tensor left, right;
    Expr inner;  // along k
  };

  void prepare() {
    const int parts = divided ? 2 : 1;
    if (c.prepare_a) a = as_tf32("prepared_a", a, c.transpose_a, parts), transpose_a = false;
    if (c.prepare_b) b = as_tf32("prepared_b", b, !c.transpose_b, parts), transpose_b = true;
  }

  Sums zeros(int rows, int width, bool gated) const {
    Sums sums;
    for (const char* name : {"sum", "values"})
      if (sums.empty() || gated) sums.emplace_back(name, std::initializer_list<int>{rows, width}, f32, 0);
    return sums;
  }

  // The smallest products come first: a times the rest of b, the rest of a times b, a times b.
  Step step_of(const Expr& matrix, const Expr& step) const {
    const auto part = [&](const Tensor& operand, bool prepared, const Expr& which) {
      return prepared ? operand.slice(which, matrix) : operand.slice(matrix);
    };
    if (!divided) return {part(a, c.prepare_a, Expr(0)), part(b, c.prepare_b, Expr(0)), step * t.k};
    const Expr third = step / ceildiv(k, t.k);
    return {part(a, true, select(third == 1, 1, 0)), part(b, true, select(third == 0, 1, 0)),
            step % ceildiv(k, t.k) * t.k};
  }

  void multiply(const Place& at, const Range& steps, Sums& sums) {
    const lang::Precision precision =
        divided ? lang::Precision::tf32 : static_cast<lang::Precision>(c.precision);
    pipelined(steps, {.stages = c.stages.value_or(0)}, [&](Index step) {
      const Step own = step_of(at.matrix, step);
      OperandTile a_tile("a_tile", t.m, t.k, c.compute, transpose_a);
      std::vector<OperandTile> b_tiles;
      for (std::size_t half = 0; half < sums.size(); ++half) {
        b_tiles.emplace_back("b_tile", t.k, t.n, c.compute, transpose_b);
        if (half == 0) a_tile.load(own.left, at.row, own.inner);
        b_tiles[half].load(own.right, own.inner, column_of(at, half));
      }
      for (std::size_t half = sums.size(); half-- > 0;)
        gemm(a_tile.operand(), b_tiles[half].operand(), sums[half], {.precision = precision});
    });
  }

  void store(const Place& at, Sums& sums) {
    Fragment& sum = sums[0];
    if (c.gated) {
      Fragment& values = sums[1];
      epilogue.complete(sum, at.row, at.column);
      epilogue.complete(values, at.row, columns + at.column);
      parallel(sum, [&](Index i, Index j) {
        sum(i, j) = activate(c.epilogue.activation, sum(i, j)) * values(i, j);
      });
    } else {
      epilogue.finish(sum, at.row, at.column);
    }
    if (c.function != nullptr)
      parallel(sum, [&](Index i, Index j) { sum(i, j) = c.function(sum(i, j), at.row + i, at.column + j); });
    if (c.residual || c.accumulates) {
      Fragment added =
          load(residual.slice(at.matrix).at(at.row, at.column), {sum.extent(0), sum.extent(1)}, f32);
      parallel(sum, [&](Index i, Index j) { sum(i, j) += added(i, j); });
    }
    if (out_scale) parallel(sum, [&](Index i, Index j) { sum(i, j) *= *out_scale; });
    copy(sum, out.slice(at.matrix).at(at.row, at.column));
  }

  // Two warp groups hold the sums of 8-bit products twice; otherwise threads are the compiler's choice.
  GridOptions options() const {
    const bool twice = c.compute.bits() == 8 && t.m % 64 == 0;
    return {.threads = twice ? std::min(256, 2 * t.m) : 0,
            .order = Order::grouped(8),
            .blocks_per_processor = c.stages ? 1 : 0};
  }

  void whole_grid() {
    grid(ceildiv(columns, t.n), ceildiv(m, t.m), batch, options(), [&](Index x, Index y, Index z) {
      const Place at{z, y * t.m, x * t.n};
      Sums sums = zeros(t.m, t.n, c.gated);
      multiply(at, range(0, steps()), sums);
      store(at, sums);
    });
  }

  // Of all columns, gates or values.
  void split_grid() {
    grid(ceildiv(n, t.n), ceildiv(m, t.m), batch * t.splits, options(), [&](Index x, Index y, Index z) {
      Expr row = y * t.m, column = x * t.n, part = z % t.splits, of = z / t.splits;
      Sums sum = zeros(t.m, t.n, false);
      multiply({of, row, column}, range(steps() * part / t.splits, steps() * (part + 1) / t.splits), sum);
      copy(sum[0], partial->slice(part, of).at(row, column));
    });
  }

  void sum_grid() {
    const int rows = summed_rows(t), width = summed_columns(t);
    grid(ceildiv(columns, width), ceildiv(m, rows), batch, [&](Index x, Index y, Index z) {
      const Place at{z, y * rows, x * width};
      Sums sums = zeros(rows, width, c.gated);
      for (std::size_t half = 0; half < sums.size(); ++half)
        for (int part = 0; part < t.splits; ++part) {
          Fragment added = load(partial->slice(part, z).at(at.row, column_of(at, half)), {rows, width});
          parallel(sums[half], [&](Index i, Index j) { sums[half](i, j) += added(i, j); });
        }
      store(at, sums);
    });
  }
};

}  // namespace

Kernel gemm_kernel(const GemmKernel& c) {
  return kernel(instance_name("gemm", c), [&] { Program(c).run(); });
}

}  // namespace tegula::ops

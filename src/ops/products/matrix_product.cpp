#include "ops/products/matrix_product.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "ops/pieces/padding.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/split_sums.hpp"
#include "ops/pieces/tf32_operands.hpp"
#include "ops/products/operand_tile.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;  // not that of the runtime

namespace {

// Elements and columns of a block that adds the split sums: few elements, so that there are blocks for all
// processors, and for matrices with few columns no more than a tile has.
constexpr int summed_elements = 1024;
constexpr int rows_of_group = 8;  // of tiles, which blocks take by columns
int summed_columns(const GemmTiles& t) { return t.n < warp_group_rows ? t.n : 256; }
int summed_rows(const GemmTiles& t) { return std::max(1, summed_elements / summed_columns(t)); }

// The sums of a tile, and if gated those of the columns that its gates multiply.
using Sums = std::vector<Fragment>;

// The tile program. Where k is split, or the copy engine does not take the result's rows, blocks of a first
// grid leave sums of their splits of k, and those of a second add them in order.
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
  bool divided = c.precision == Precision::tf32x3 && c.prepare_a;  // into two terms, of which both are read
  std::optional<Expr> out_scale, whole_tiles;
  std::optional<Tensor> partial;

  explicit Program(const GemmKernel& instance) : c(instance) {
    if (c.rescaled) out_scale.emplace(scalar("out_scale", f32));
    const int piece = bytes_of_piece / f32.bytes();
    if (c.tail_splits > 1) {
      whole_tiles.emplace(scalar("whole_tiles", i32));
      partial.emplace(workspace("partial", {c.tail_splits, count_of_tiles() - *whole_tiles, t.m, t.n}, f32));
    } else if (t.splits > 1 || c.pad_out)
      partial.emplace(workspace("partial", {t.splits, batch, m, ceildiv(n, piece) * piece}, f32));
  }

  void run() {
    if (c.pad_a) a = padded("padded_a", a);
    if (c.pad_b) b = padded("padded_b", b);
    prepare();
    if (whole_tiles) {
      tail_grid();
      tail_sum_grid();
    } else if (partial) {
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
  Expr count_of_tiles() const { return ceildiv(n, t.n) * ceildiv(m, t.m); }
  // The tile of a number, in the order of grids with groups of rows.
  Place place_of(const Expr& tile) const {
    Expr across = ceildiv(n, t.n), first = tile / (rows_of_group * across) * rows_of_group,
         rows = min(rows_of_group, ceildiv(m, t.m) - first), rest = tile - first * across;
    return {0, (first + rest % rows) * t.m, rest / rows * t.n};
  }
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
    const int terms = divided ? 2 : 1;
    if (c.prepare_a) a = as_tf32("prepared_a", a, c.transpose_a, terms), transpose_a = false;
    if (c.prepare_b) b = as_tf32("prepared_b", b, !c.transpose_b, terms), transpose_b = true;
  }

  Sums zeros(int rows, int width, bool gated, DType type = f32) const {
    Sums sums;
    for (const char* name : {"sum", "values"})
      if (sums.empty() || gated) sums.emplace_back(name, std::initializer_list<int>{rows, width}, type, 0);
    return sums;
  }

  // The smallest products come first: a times the rest of b, the rest of a times b, a times b.
  Step step_of(const Expr& matrix, const Expr& step) const {
    const auto term = [&](const Tensor& operand, bool prepared, const Expr& which) {
      return prepared ? operand.slice(which, matrix) : operand.slice(matrix);
    };
    if (!divided) return {term(a, c.prepare_a, Expr(0)), term(b, c.prepare_b, Expr(0)), step * t.k};
    const Expr third = step / ceildiv(k, t.k);
    return {term(a, true, select(third == 1, 1, 0)), term(b, true, select(third == 0, 1, 0)),
            step % ceildiv(k, t.k) * t.k};
  }

  // The sums of a tile over these steps, for what follows in f32.
  Sums product(const Place& at, const Range& steps, bool gated) {
    Sums sums = zeros(t.m, t.n, gated, c.f16_sums ? f16 : f32);
    multiply(at, steps, sums);
    if (!c.f16_sums) return sums;
    Sums wide;
    for (Fragment& sum : sums) wide.push_back(sum.to(f32));
    return wide;
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
            .order = Order::grouped(rows_of_group),
            .blocks_per_processor = c.stages ? 1 : 0};
  }

  void whole_grid() {
    grid(ceildiv(columns, t.n), ceildiv(m, t.m), batch, options(), [&](Index x, Index y, Index z) {
      const Place at{z, y * t.m, x * t.n};
      Sums sums = product(at, range(0, steps()), c.gated);
      store(at, sums);
    });
  }

  // Of all columns, gates or values.
  void split_grid() {
    grid(ceildiv(n, t.n), ceildiv(m, t.m), batch * t.splits, options(), [&](Index x, Index y, Index z) {
      Expr split = z % t.splits;
      const Place at{z / t.splits, y * t.m, x * t.n};
      Sums sum = product(at, range(steps() * split / t.splits, steps() * (split + 1) / t.splits), false);
      copy(sum[0], partial->slice(split, at.matrix).at(at.row, at.column));
    });
  }

  void sum_grid() {
    const int rows = summed_rows(t), width = summed_columns(t);
    grid(ceildiv(columns, width), ceildiv(m, rows), batch, [&](Index x, Index y, Index z) {
      const Place at{z, y * rows, x * width};
      Sums sums = zeros(rows, width, c.gated);
      for (std::size_t half = 0; half < sums.size(); ++half)
        add_splits(sums[half], t.splits,
                   [&](int split) { return partial->slice(split, z).at(at.row, column_of(at, half)); });
      store(at, sums);
    });
  }

  // As stream-K does: the tiles of whole rounds of blocks are products of all of k, and those that are left
  // over are divided along k, so that the last round is as full as the others.
  void tail_grid() {
    const int splits = c.tail_splits;
    Expr whole = *whole_tiles, all_blocks = whole + (count_of_tiles() - whole) * splits;
    GridOptions by_number = options();
    by_number.order = {};
    grid(all_blocks, by_number, [&](Index block) {
      Expr of_tail = max(block - whole, 0), split = of_tail % splits;
      const Place at = place_of(select(block < whole, block, whole + of_tail / splits));
      Expr begin = select(block < whole, 0, steps() * split / splits),
           end = select(block < whole, steps(), steps() * (split + 1) / splits);
      Sums sum = product(at, range(begin, end), false);
      when(block < whole, [&] { store(at, sum); }).otherwise([&] {
        copy(sum[0], partial->slice(split, of_tail / splits));
      });
    });
  }

  void tail_sum_grid() {
    const int rows = std::max(1, summed_elements / t.n);
    grid(count_of_tiles() - *whole_tiles, ceildiv(t.m, rows), [&](Index tile, Index piece) {
      const Place of_tile = place_of(*whole_tiles + tile);
      Sums sum = zeros(rows, t.n, false);
      add_splits(sum[0], c.tail_splits,
                 [&](int split) { return partial->slice(split, tile).at(piece * rows, 0); });
      store({of_tile.matrix, of_tile.row + piece * rows, of_tile.column}, sum);
    });
  }
};

}  // namespace

Kernel gemm_kernel(const GemmKernel& c) {
  return kernel(instance_name("gemm", c), [&] { Program(c).run(); });
}

}  // namespace tegula::ops

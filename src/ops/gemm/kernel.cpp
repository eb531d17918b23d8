#include "ops/gemm/kernel.hpp"

#include <algorithm>
#include <optional>

#include "ops/pieces/padding.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/tf32_operands.hpp"

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

// The tile program. Where k is split, or the copy engine does not take the result's rows, blocks of a first
// grid leave sums of their parts of k, and those of a second add them in order.
struct Program {
  const GemmKernel& c;
  const GemmTiles& t = c.tiles;
  Dim batch{"batch"}, m{"m"}, n{"n"}, k{"k"};
  Expr columns = c.gated ? n / 2 : Expr(n);  // of the result
  Tensor a, b, out;
  bool transpose_a = c.transpose_a, transpose_b = c.transpose_b;   // of what is multiplied
  bool divided = c.precision == Precision::tf32x3 && c.prepare_a;  // into two parts, of which both are read
  std::optional<Tensor> bias, row_scale, column_scale, residual, partial;
  std::optional<Expr> scale, out_scale, whole_tiles;

  explicit Program(const GemmKernel& instance)
      : c(instance),
        a(c.transpose_a ? input("a", {batch, k, m}, c.type) : input("a", {batch, m, k}, c.type)),
        b(c.transpose_b ? input("b", {batch, n, k}, c.type) : input("b", {batch, k, n}, c.type)),
        out(c.accumulates ? inout("out", {batch, m, columns}, c.out)
                          : output("out", {batch, m, columns}, c.out)) {
    if (c.row_scale) row_scale.emplace(input("row_scale", {m}, f32));
    if (c.column_scale) column_scale.emplace(input("column_scale", {n}, f32));
    if (c.residual) residual.emplace(input("residual", {batch, m, columns}, *c.residual));
    if (c.bias) bias.emplace(input("bias", {n}, *c.bias));
    if (c.scaled) scale.emplace(scalar("scale", f32));
    if (c.rescaled) out_scale.emplace(scalar("out_scale", f32));
    const int piece = bytes_of_piece / f32.bytes();
    if (c.tail_splits > 1) {
      whole_tiles.emplace(scalar("whole_tiles", i32));
      partial.emplace(workspace("partial", {c.tail_splits, tiles() - *whole_tiles, t.m, t.n}, f32));
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
  void prepare();
  void whole_grid();
  void split_grid();
  void sum_grid();
  // As stream-K does: the tiles of whole rounds of blocks are products of all of k, and those that are left
  // over are divided along k, so that the last round is as full as the others.
  void tail_grid();
  void tail_sum_grid();
  // A tile of the result.
  struct Place {
    Expr matrix, row, column;
  };
  Expr tiles() const { return ceildiv(n, t.n) * ceildiv(m, t.m); }
  // The tile of a number, in the order of grids with groups of rows.
  Place place_of(const Expr& tile) const;
  // Gated, `second` are the sums of the columns that gates multiply.
  void multiply(const Place& at, const Range& steps, Fragment& sum, Fragment* second = nullptr);
  // Steps of a product over all of k: three times as many if operands are split.
  Expr steps() const { return divided ? ceildiv(k, t.k) * 3 : ceildiv(k, t.k); }
  struct Step {
    Tensor left, right;
    Expr inner;  // along k
  };
  Step step_of(const Expr& matrix, const Expr& step) const;
  void complete(const Expr& row, const Expr& column, Fragment& sum);
  void store(const Place& at, Fragment& sum, Fragment* second);
  GridOptions options() const;
};

void Program::prepare() {
  const int parts = divided ? 2 : 1;
  if (c.prepare_a) a = as_tf32("prepared_a", a, c.transpose_a, parts), transpose_a = false;
  if (c.prepare_b) b = as_tf32("prepared_b", b, !c.transpose_b, parts), transpose_b = true;
}

// The smallest products come first: a times the rest of b, the rest of a times b, a times b.
Program::Step Program::step_of(const Expr& matrix, const Expr& step) const {
  const auto part = [&](const Tensor& operand, bool prepared, const Expr& which) {
    return prepared ? operand.slice(which, matrix) : operand.slice(matrix);
  };
  if (!divided) return {part(a, c.prepare_a, Expr(0)), part(b, c.prepare_b, Expr(0)), step * t.k};
  const Expr third = step / ceildiv(k, t.k);
  return {part(a, true, select(third == 1, 1, 0)), part(b, true, select(third == 0, 1, 0)),
          step % ceildiv(k, t.k) * t.k};
}

void Program::multiply(const Place& at, const Range& steps, Fragment& sum, Fragment* second) {
  const lang::Precision precision =
      divided ? lang::Precision::tf32 : static_cast<lang::Precision>(c.precision);
  pipelined(steps, {.stages = c.stages.value_or(0)}, [&](Index step) {
    const Step own = step_of(at.matrix, step);
    Shared a_tile("a_tile", {transpose_a ? t.k : t.m, transpose_a ? t.m : t.k}, c.compute);
    const auto b_tile = [&] {
      return Shared("b_tile", {transpose_b ? t.n : t.k, transpose_b ? t.k : t.n}, c.compute);
    };
    const auto load_b = [&](const Expr& column, Shared& tile) {
      copy(transpose_b ? own.right.at(column, own.inner) : own.right.at(own.inner, column), tile);
    };
    const auto turned = [](Shared& tile, bool transposed) { return transposed ? tile.T() : std::move(tile); };
    Shared first_b = b_tile();
    copy(transpose_a ? own.left.at(own.inner, at.row) : own.left.at(at.row, own.inner), a_tile);
    load_b(at.column, first_b);
    if (second != nullptr) {
      Shared second_b = b_tile();
      load_b(columns + at.column, second_b);
      if (transpose_a)
        gemm(a_tile.T(), turned(second_b, transpose_b), *second, {.precision = precision});
      else
        gemm(a_tile, turned(second_b, transpose_b), *second, {.precision = precision});
    }
    gemm(turned(a_tile, transpose_a), turned(first_b, transpose_b), sum, {.precision = precision});
  });
}

// The product becomes what the activation takes.
void Program::complete(const Expr& row, const Expr& column, Fragment& sum) {
  if (scale) parallel(sum, [&](Index i, Index j) { sum(i, j) = sum(i, j) * *scale; });
  if (row_scale) {
    Fragment factors("factors", {sum.extent(0)}, f32);
    copy(row_scale->at(row), factors);
    parallel(sum, [&](Index i, Index j) { sum(i, j) *= factors(i); });
  }
  if (column_scale) {
    Fragment factors("factors", {sum.extent(1)}, f32);
    copy(column_scale->at(column), factors);
    parallel(sum, [&](Index i, Index j) { sum(i, j) *= factors(j); });
  }
  if (bias) {
    Fragment added("added", {sum.extent(1)}, f32);
    copy(bias->at(column), added);
    if (c.gated)
      parallel(sum, [&](Index i, Index j) { sum(i, j) += added(j); });
    else
      parallel(sum, [&](Index i, Index j) { sum(i, j) = activate(c.activation, sum(i, j) + added(j)); });
  } else if (c.activation != Activation::none && !c.gated) {
    parallel(sum, [&](Index i, Index j) { sum(i, j) = activate(c.activation, sum(i, j)); });
  }
}

void Program::store(const Place& at, Fragment& sum, Fragment* second) {
  complete(at.row, at.column, sum);
  if (second != nullptr) {
    complete(at.row, columns + at.column, *second);
    Fragment& values = *second;
    parallel(sum, [&](Index i, Index j) { sum(i, j) = activate(c.activation, sum(i, j)) * values(i, j); });
  }
  if (c.epilogue != nullptr)
    parallel(sum, [&](Index i, Index j) { sum(i, j) = c.epilogue(sum(i, j), at.row + i, at.column + j); });
  for (const Tensor* own : {residual ? &*residual : nullptr, c.accumulates ? &out : nullptr}) {
    if (own == nullptr) continue;
    Fragment added = load(own->slice(at.matrix).at(at.row, at.column), {sum.extent(0), sum.extent(1)}, f32);
    parallel(sum, [&](Index i, Index j) { sum(i, j) += added(i, j); });
  }
  if (out_scale) parallel(sum, [&](Index i, Index j) { sum(i, j) *= *out_scale; });
  copy(sum, out.slice(at.matrix).at(at.row, at.column));
}

// Two warp groups hold the sums of 8-bit products twice; otherwise threads are the compiler's choice.
GridOptions Program::options() const {
  const bool twice = c.compute.bits() == 8 && t.m % 64 == 0;
  return {.threads = twice ? std::min(256, 2 * t.m) : 0,
          .order = Order::grouped(rows_of_group),
          .blocks_per_processor = c.stages ? 1 : 0};
}

void Program::whole_grid() {
  grid(ceildiv(columns, t.n), ceildiv(m, t.m), batch, options(), [&](Index x, Index y, Index z) {
    const Place at{z, y * t.m, x * t.n};
    Fragment sum("sum", {t.m, t.n}, f32, 0);
    if (c.gated) {
      Fragment values("values", {t.m, t.n}, f32, 0);
      multiply(at, range(0, steps()), sum, &values);
      return store(at, sum, &values);
    }
    multiply(at, range(0, steps()), sum);
    store(at, sum, nullptr);
  });
}

void Program::split_grid() {
  grid(ceildiv(n, t.n), ceildiv(m, t.m), batch * t.splits, options(), [&](Index x, Index y, Index z) {
    Expr row = y * t.m, column = x * t.n, part = z % t.splits, of = z / t.splits;
    const Place at{of, row, column};
    Fragment sum("sum", {t.m, t.n}, f32, 0);
    multiply(at, range(steps() * part / t.splits, steps() * (part + 1) / t.splits), sum);
    copy(sum, partial->slice(part, of).at(at.row, at.column));
  });
}

void Program::sum_grid() {
  const int rows = summed_rows(t), width = summed_columns(t);
  grid(ceildiv(columns, width), ceildiv(m, rows), batch, [&](Index x, Index y, Index z) {
    const Place at{z, y * rows, x * width};
    const auto add_up = [&](const Expr& column, Fragment& sum) {
      for (int part = 0; part < t.splits; ++part) {
        Fragment added = load(partial->slice(part, z).at(at.row, column), {rows, width});
        parallel(sum, [&](Index i, Index j) { sum(i, j) += added(i, j); });
      }
    };
    Fragment sum("sum", {rows, width}, f32, 0);
    add_up(at.column, sum);
    if (!c.gated) return store(at, sum, nullptr);
    Fragment values("values", {rows, width}, f32, 0);
    add_up(columns + at.column, values);
    store(at, sum, &values);
  });
}

Program::Place Program::place_of(const Expr& tile) const {
  Expr across = ceildiv(n, t.n), first = tile / (rows_of_group * across) * rows_of_group,
       rows = min(rows_of_group, ceildiv(m, t.m) - first), rest = tile - first * across;
  return {0, (first + rest % rows) * t.m, rest / rows * t.n};
}

void Program::tail_grid() {
  const int splits = c.tail_splits;
  Expr whole = *whole_tiles, all_blocks = whole + (tiles() - whole) * splits;
  GridOptions by_number = options();
  by_number.order = {};
  grid(all_blocks, by_number, [&](Index block) {
    Expr of_tail = max(block - whole, 0), part = of_tail % splits;
    const Place at = place_of(select(block < whole, block, whole + of_tail / splits));
    Expr begin = select(block < whole, 0, steps() * part / splits),
         end = select(block < whole, steps(), steps() * (part + 1) / splits);
    Fragment sum("sum", {t.m, t.n}, f32, 0);
    multiply(at, range(begin, end), sum);
    when(block < whole, [&] { store(at, sum, nullptr); }).otherwise([&] {
      copy(sum, partial->slice(part, of_tail / splits));
    });
  });
}

void Program::tail_sum_grid() {
  const int rows = std::max(1, summed_elements / t.n);
  grid(tiles() - *whole_tiles, ceildiv(t.m, rows), [&](Index tile, Index piece) {
    const Place of_tile = place_of(*whole_tiles + tile);
    Fragment sum("sum", {rows, t.n}, f32, 0);
    for (int part = 0; part < c.tail_splits; ++part) {
      Fragment added = load(partial->slice(part, tile).at(piece * rows, 0), {rows, t.n});
      parallel(sum, [&](Index i, Index j) { sum(i, j) += added(i, j); });
    }
    store({of_tile.matrix, of_tile.row + piece * rows, of_tile.column}, sum, nullptr);
  });
}

}  // namespace

Kernel gemm_kernel(const GemmKernel& c) {
  return kernel(instance_name("gemm", c), [&] { Program(c).run(); });
}

}  // namespace tegula::ops

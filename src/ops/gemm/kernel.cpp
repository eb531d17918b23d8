#include "ops/gemm/kernel.hpp"

#include <algorithm>
#include <optional>

#include "ops/pieces/padding.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;  // not that of the runtime

namespace {

// Of a block that adds the parts of sums: few elements, so that there are blocks for every processor, and of
// matrices with few columns no more than a tile has.
constexpr int summed_elements = 1024;
int summed_columns(const GemmTiles& t) { return t.n < warp_group_rows ? t.n : 256; }
int summed_rows(const GemmTiles& t) { return std::max(1, summed_elements / summed_columns(t)); }

// The tile program. Where k is split, or the copy engine does not take the result's rows, blocks of a first
// grid leave sums of their parts of k, and those of a second add them in order.
struct Program {
  const GemmKernel& c;
  const GemmTiles& t = c.tiles;
  Dim batch{"batch"}, m{"m"}, n{"n"}, k{"k"};
  Tensor a, b, out;
  std::optional<Tensor> bias, partial;
  std::optional<Expr> scale;

  explicit Program(const GemmKernel& instance)
      : c(instance),
        a(c.transpose_a ? input("a", {batch, k, m}, c.type) : input("a", {batch, m, k}, c.type)),
        b(c.transpose_b ? input("b", {batch, n, k}, c.type) : input("b", {batch, k, n}, c.type)),
        out(output("out", {batch, m, n}, c.out)) {
    if (c.bias) bias.emplace(input("bias", {n}, *c.bias));
    if (c.scaled) scale.emplace(scalar("scale", f32));
    const int piece = bytes_of_piece / f32.bytes();
    if (t.splits > 1 || c.pad_out)
      partial.emplace(workspace("partial", {t.splits, batch, m, ceildiv(n, piece) * piece}, f32));
  }

  void run() {
    if (c.pad_a) a = padded("padded_a", a);
    if (c.pad_b) b = padded("padded_b", b);
    if (partial) {
      split_grid();
      sum_grid();
    } else {
      whole_grid();
    }
  }
  void whole_grid();
  void split_grid();
  void sum_grid();
  void multiply(const Tensor& left, const Tensor& right, const Expr& row, const Expr& column,
                const Range& steps, Fragment& sum);
  void finish(const Expr& column, Fragment& sum);
  GridOptions options() const;
};

void Program::multiply(const Tensor& left, const Tensor& right, const Expr& row, const Expr& column,
                       const Range& steps, Fragment& sum) {
  pipelined(steps, {.stages = c.stages.value_or(0)}, [&](Index step) {
    Expr inner = step * t.k;
    Shared a_tile({c.transpose_a ? t.k : t.m, c.transpose_a ? t.m : t.k}, c.compute);
    Shared b_tile({c.transpose_b ? t.n : t.k, c.transpose_b ? t.k : t.n}, c.compute);
    copy(c.transpose_a ? left.at(inner, row) : left.at(row, inner), a_tile);
    copy(c.transpose_b ? right.at(column, inner) : right.at(inner, column), b_tile);
    const auto turned = [](Shared& tile, bool transposed) { return transposed ? tile.T() : std::move(tile); };
    gemm(turned(a_tile, c.transpose_a), turned(b_tile, c.transpose_b), sum);
  });
}

void Program::finish(const Expr& column, Fragment& sum) {
  if (scale) parallel(sum, [&](Index i, Index j) { sum(i, j) = sum(i, j) * *scale; });
  if (bias) {
    Fragment added({sum.extent(1)}, f32);
    copy(bias->at(column), added);
    parallel(sum, [&](Index i, Index j) { sum(i, j) = activate(c.activation, sum(i, j) + added(j)); });
  } else if (c.activation != Activation::none) {
    parallel(sum, [&](Index i, Index j) { sum(i, j) = activate(c.activation, sum(i, j)); });
  }
}

// Two warp groups hold the sums of 8-bit products twice; otherwise threads are the compiler's choice.
GridOptions Program::options() const {
  const bool twice = c.compute.bits() == 8 && t.m % 64 == 0;
  return {.threads = twice ? std::min(256, 2 * t.m) : 0,
          .order = Order::grouped(8),
          .blocks_per_processor = c.stages ? 1 : 0};
}

void Program::whole_grid() {
  grid(ceildiv(n, t.n), ceildiv(m, t.m), batch, options(), [&](Index x, Index y, Index z) {
    Expr row = y * t.m, column = x * t.n;
    Fragment sum({t.m, t.n}, f32, 0);
    multiply(a.slice(z), b.slice(z), row, column, range(0, ceildiv(k, t.k)), sum);
    finish(column, sum);
    copy(sum, out.slice(z).at(row, column));
  });
}

void Program::split_grid() {
  grid(ceildiv(n, t.n), ceildiv(m, t.m), batch * t.splits, options(), [&](Index x, Index y, Index z) {
    Expr row = y * t.m, column = x * t.n, part = z % t.splits, of = z / t.splits;
    Expr steps = ceildiv(k, t.k);
    Fragment sum({t.m, t.n}, f32, 0);
    multiply(a.slice(of), b.slice(of), row, column,
             range(steps * part / t.splits, steps * (part + 1) / t.splits), sum);
    copy(sum, partial->slice(part, of).at(row, column));
  });
}

void Program::sum_grid() {
  const int rows = summed_rows(t), columns = summed_columns(t);
  grid(ceildiv(n, columns), ceildiv(m, rows), batch, [&](Index x, Index y, Index z) {
    Expr row = y * rows, column = x * columns;
    Fragment sum({rows, columns}, f32, 0);
    for (int part = 0; part < t.splits; ++part) {
      Fragment added = load(partial->slice(part, z).at(row, column), {rows, columns});
      parallel(sum, [&](Index i, Index j) { sum(i, j) += added(i, j); });
    }
    finish(column, sum);
    copy(sum, out.slice(z).at(row, column));
  });
}

}  // namespace

Kernel gemm_kernel(const GemmKernel& c) {
  return kernel(instance_name("gemm", c), [&] { Program(c).run(); });
}

}  // namespace tegula::ops

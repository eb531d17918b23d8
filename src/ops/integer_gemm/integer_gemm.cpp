#include "tegula/ops/integer_gemm.hpp"

#include "ops/pieces/product_plan.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// Where rows are odd: numbers of 8 bits are exact as bf16, and so are sums of this many
// products, at most 2^14 each, in f32.
constexpr int exact_products = 512;

struct Instance {
  DType compute = bf16;  // i8 where tensor cores take integers
  bool c = false;
  int m = 64, n = 64, k = 64;
  int splits = 1;  // of k, whose sums a second grid adds
  auto fields() const {
    return std::tuple(compute, labelled("c", c), joined("t", m, n), k, labelled("splits", splits));
  }
};

// As floats, by a grid of its own: tensor cores take them.
Tensor as_floats(const char* name, const Tensor& from, DType type) {
  constexpr int rows = 16, columns = 256;
  Tensor to = workspace(name, {from.extent(0), ceildiv(from.extent(1), 8) * 8}, type);
  grid(ceildiv(to.extent(1), columns), ceildiv(from.extent(0), rows), [&](Index x, Index y) {
    Fragment own = load(from.at(y * rows, x * columns), {rows, columns});
    copy(map(own, [&](Index i, Index j) { return f32(own(i, j)); }), to.at(y * rows, x * columns));
  });
  return to;
}

// Adds the tile of a split of k of a b^T at the row and column, by products of integers: wraps as 32 bits do.
void add_product(const Tensor& left, const Tensor& right, Expr row, Expr column, Expr split,
                 const Instance& t, Fragment& sum) {
  Expr steps = ceildiv(left.extent(1), t.k);
  const lang::Range own = range(steps * split / t.splits, steps * (split + 1) / t.splits);
  pipelined(t.splits > 1 ? own : range(0, steps), {.stages = 4}, [&](Index step) {
    Shared a_tile({t.m, t.k}, i8), b_tile({t.n, t.k}, i8);
    copy(left.at(row, step * t.k), a_tile);
    copy(right.at(column, step * t.k), b_tile);
    gemm(a_tile, b_tile.T(), sum);
  });
}

// The same of floats and all of k, whose sums become integers before they are inexact.
void add_product_of_floats(const Tensor& left, const Tensor& right, Expr row, Expr column, const Instance& t,
                           Fragment& sum) {
  const Expr steps = ceildiv(left.extent(1), t.k);
  serial(ceildiv(left.extent(1), exact_products), [&](Index split) {
    Fragment exact({t.m, t.n}, f32, 0);
    Expr first = split * (exact_products / t.k);
    pipelined(range(first, min(first + exact_products / t.k, steps)), {.stages = 4}, [&](Index step) {
      Shared a_tile({t.m, t.k}, t.compute), b_tile({t.n, t.k}, t.compute);
      copy(left.at(row, step * t.k), a_tile);
      copy(right.at(column, step * t.k), b_tile);
      gemm(a_tile, b_tile.T(), exact);
    });
    parallel(sum, [&](Index i, Index j) { sum(i, j) = i32(u32(sum(i, j)) + u32(i32(exact(i, j)))); });
  });
}

void add_splits(const Tensor& partial, const std::optional<Tensor>& c, const Tensor& out, const Instance& t) {
  constexpr int rows = 4, columns = 256;
  grid(ceildiv(out.extent(1), columns), ceildiv(out.extent(0), rows), [&](Index x, Index y) {
    Fragment sum({rows, columns}, i32, 0);
    if (c) copy(c->at(y * rows, x * columns), sum);
    for (int split = 0; split < t.splits; ++split) {
      Fragment own = load(partial.slice(split).at(y * rows, x * columns), {rows, columns});
      parallel(sum, [&](Index i, Index j) { sum(i, j) = i32(u32(sum(i, j)) + u32(own(i, j))); });
    }
    copy(sum, out.at(y * rows, x * columns));
  });
}

Kernel program(const Instance& t) {
  return kernel(instance_name("integer_gemm", t), [&] {
    Dim m("m"), n("n"), k("k");
    Tensor a = input("a", {m, k}, i8), b = input("b", {n, k}, i8);
    std::optional<Tensor> c;
    if (t.c) c.emplace(input("c", {m, n}, i32));
    Tensor out = output("out", {m, n}, i32);
    const bool floats = t.compute.is_floating();
    const Tensor left = floats ? as_floats("left", a, t.compute) : a,
                 right = floats ? as_floats("right", b, t.compute) : b;
    if (t.splits > 1) {
      const Tensor partial = workspace("parts", {t.splits, m, n}, i32);
      grid(ceildiv(n, t.n), ceildiv(m, t.m), t.splits, [&](Index x, Index y, Index split) {
        Fragment sum({t.m, t.n}, i32, 0);
        add_product(left, right, y * t.m, x * t.n, split, t, sum);
        copy(sum, partial.slice(split).at(y * t.m, x * t.n));
      });
      return add_splits(partial, c, out, t);
    }
    grid(ceildiv(n, t.n), ceildiv(m, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Expr row = y * t.m, column = x * t.n;
      Fragment sum({t.m, t.n}, i32, 0);
      if (c) copy(c->at(row, column), sum);
      if (floats)
        add_product_of_floats(left, right, row, column, t, sum);
      else
        add_product(left, right, row, column, 0, t, sum);
      copy(sum, out.at(row, column));
    });
  });
}

// Splits of k so that every processor has up to two blocks, where each has two steps at least: more would be
// a second round, and more sums to read again.
int splits_of(const Bound<IntegerGemm>& c, const Instance& t, int processors) {
  const std::int64_t blocks = ((c.dim("m") + t.m - 1) / t.m) * ((c.dim("n") + t.n - 1) / t.n),
                     steps = (c.dim("k") + t.k - 1) / t.k;
  int splits = 1;
  while (blocks * splits <= processors && 4 * splits <= steps && splits < 16) splits *= 2;
  return splits;
}

// Processors multiply pairs of bf16 at once, or have no less than f32. Of the largest tiles two sums would
// not fit the second-level cache.
Instance plan_on_cpu(const Bound<IntegerGemm>& c) {
  const ProductProblem problem{.m = c.dim("m"),
                               .n = c.dim("n"),
                               .k = c.dim("k"),
                               .threads = planned_threads(c.call()),
                               .most_rows = 128,
                               .most_columns = 256};
  const GemmTiles tiles = plan_product(problem, {}).tiles;
  return {.compute = bf16, .c = c.has("c"), .m = tiles.m, .n = tiles.n, .k = tiles.k};
}

Instance plan(const Bound<IntegerGemm>& c) {
  if (!c.on_gpu()) return plan_on_cpu(c);
  Instance t{.c = c.has("c")};
  // Rows of whole 16 bytes are copied as they are; others best while they become floats.
  t.compute = c.dim("k") % 16 == 0 ? i8 : bf16;
  if (t.compute == i8) t.k = 128;
  // Tensor cores take 64 rows of b where a has fewer.
  constexpr TileCost tiles[] = {{128, 128, 128, 0.4, 0.4},
                                {64, 128, 128, 0.45, 0.45},
                                {64, 64, 128, 1, 1},
                                {32, 128, 128, 0.8, 0.8},
                                {16, 128, 128, 1.5, 1.5}};
  const int processors = planned_gpu_processors(c.call());
  const ProductTile tile =
      best_tile(tiles, {1, c.dim("m"), c.dim("n"), c.dim("k")}, t.compute.bytes(), processors);
  t.m = tile.m, t.n = tile.n;
  if (t.compute == i8) t.splits = splits_of(c, t, processors);
  return t;
}

void formula(const Bound<IntegerGemm>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k");
  const auto *a = exact["a"].data_as<std::int8_t>(), *b = exact["b"].data_as<std::int8_t>();
  const auto* added = c.has("c") ? exact["c"].data_as<std::int32_t>() : nullptr;
  auto* out = exact["out"].data_as<std::int32_t>();
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      std::int64_t sum = added ? added[i * n + j] : 0;
      for (std::int64_t e = 0; e < k; ++e) sum += a[i * k + e] * b[j * k + e];
      out[i * n + j] = static_cast<std::int32_t>(sum);
    }
}

}  // namespace

const OperatorSchema& integer_gemm_schema() {
  using Op = IntegerGemm;
  static const OperatorSchema table =
      Schema<Op>("integer_gemm", "product of 8-bit integers, exact in 32 bits")
          .in(&Op::a, "a", "m k", is(i8), "left matrix")
          .range("-128", "128")
          .in(&Op::b, "b", "n k", is(i8), "right matrix, transposed")
          .range("-128", "128")
          .in(&Op::c, "c", "m n", is(i32), "added")
          .out(&Op::out, "out", "m n", is(i32), "c + a * b^T")
          .source(
              "Jacob et al. 2017, Quantization and Training of Neural Networks for Integer-Arithmetic-Only "
              "Inference")
          .no_gradient("its operands are integers")
          .flops("2*m*n*k")
          .examples({{"ragged", "m=37 n=70 k=100"},
                     {"added", "m=20 n=40 k=1100 c"},
                     {"whole_pieces", "m=70 n=40 k=272 c"},
                     {"split", "m=20 n=72 k=1040 c"}})
          .measured({{"8192", "m=8192 n=8192 k=8192"}, {"16x8192", "m=16 n=8192 k=8192"}})
          .run(plan, program, formula);
  return table;
}

}  // namespace tegula::ops

#include "tegula/ops/gemv.hpp"

#include <algorithm>
#include <optional>

#include "ops/products/product_tiles.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = f32, vector = f32, out = f32;
  bool transposed = false;
  int m = 4, k = 2048;    // rows and columns of a, transposed columns and rows, that a block reads at a time
  int splits = 1;         // blocks of a row
  bool in_place = false;  // rows are read where they are, not copied first: CPUs copy as slowly as they read
  auto fields() const {
    return std::tuple(type, labelled("x", vector), labelled("out", out), labelled("transposed", transposed),
                      joined("t", m, k), labelled("splits", splits), labelled("in_place", in_place));
  }
};

constexpr int threads = 128, summed = 128;

struct Program {
  const Instance& c;
  Dim batch{"batch"}, m{"m"}, k{"k"};
  Tensor a = c.transposed ? input("a", {batch, k, m}, c.type) : input("a", {batch, m, k}, c.type);
  Tensor x = input("x", {batch, k}, c.vector), out = output("out", {batch, m}, c.out);
  Expr scale = scalar("scale", f32);

  // Sums of the block's rows over `steps`. Lanes of a row meet in every step, so that few registers are held;
  // those of columns, whose elements are apart, at the end.
  Fragment sums(const Expr& row, const Expr& z, const Range& steps) const {
    Fragment sum({c.m}, f32, 0);
    if (c.transposed && c.in_place) {
      serial(steps, [&](Index step) { add_columns_in_place(sum, row, z, step); });
    } else if (c.transposed) {
      Fragment products({c.k, c.m}, f32, 0);
      serial(steps, [&](Index step) {
        Fragment own = load(a.slice(z).at(step * c.k, row), {c.k, c.m}),
                 by = load(x.slice(z).at(step * c.k), {c.k});
        parallel(products, [&](Index i, Index j) { products(i, j) += own(i, j) * by(i); });
      });
      reduce_sum(products, sum, 0);
    } else {
      serial(steps, [&](Index step) {
        if (c.in_place) return add_in_place(sum, row, z, step);
        Fragment own = load(a.slice(z).at(row, step * c.k), {c.m, c.k}),
                 by = load(x.slice(z).at(step * c.k), {c.k});
        Fragment products = map(own, [&](Index i, Index j) { return own(i, j) * by(j); });
        reduce_sum(products, sum);
      });
    }
    return sum;
  }

  void add_in_place(Fragment& sum, const Expr& row, const Expr& z, const Expr& step) const {
    Fragment by = load(x.slice(z).at(step * c.k), {c.k}), products({c.m, c.k}, f32);
    parallel(products,
             [&](Index i, Index j) { products(i, j) = f32(a(z, row + i, step * c.k + j)) * f32(by(j)); });
    reduce_sum(products, sum);
  }

  void add_columns_in_place(Fragment& sum, const Expr& column, const Expr& z, const Expr& step) const {
    Fragment by = load(x.slice(z).at(step * c.k), {c.k}, f32);
    parallel(sum, [&](Index j) {
      std::optional<Expr> added;  // the sum itself waits once for all rows
      for (int i = 0; i < c.k; ++i) {
        Expr product = f32(a(z, step * c.k + i, column + j)) * by(i);
        added.emplace(added ? *added + product : product);
      }
      sum(j) += *added;
    });
  }

  void whole() const {
    grid(ceildiv(m, c.m), batch, {.threads = threads}, [&](Index block, Index z) {
      Fragment sum = sums(block * c.m, z, range(0, ceildiv(k, c.k)));
      parallel(sum, [&](Index i) { sum(i) *= scale; });
      copy(sum, out.slice(z).at(block * c.m));
    });
  }

  void in_splits() const {
    Tensor partial = workspace("parts", {c.splits, batch, m}, f32);
    grid(ceildiv(m, c.m), c.splits, batch, {.threads = threads}, [&](Index block, Index split, Index z) {
      Expr steps = ceildiv(k, c.k);
      Fragment sum = sums(block * c.m, z, range(steps * split / c.splits, steps * (split + 1) / c.splits));
      copy(sum, partial.slice(split, z).at(block * c.m));
    });
    grid(ceildiv(m, summed), batch, [&](Index block, Index z) {
      Fragment sum({summed}, f32, 0);
      for (int split = 0; split < c.splits; ++split) {
        Fragment added = load(partial.slice(split, z).at(block * summed), {summed});
        parallel(sum, [&](Index i) { sum(i) += added(i); });
      }
      parallel(sum, [&](Index i) { sum(i) *= scale; });
      copy(sum, out.slice(z).at(block * summed));
    });
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("gemv", c), [&] {
    const Program own{c};
    c.splits > 1 ? own.in_splits() : own.whole();
  });
}

// Columns that a CPU multiplies at a time; the next piece of a row comes meanwhile. Of a short row no more is
// asked for than its vectors, since what lies outside takes longer than what is inside.
int piece_of_row(std::int64_t k, DType type) {
  constexpr int most_bytes = 1024, vector = 16;
  const int most = most_bytes / type.bytes();
  return k > most ? most : std::max(1, static_cast<int>((k + vector - 1) / vector)) * vector;
}

// Of a transposed matrix a CPU adds some rows at a time to the sums of as many columns as stay in the first
// level cache: a row is read in long runs, not a few lines from each of its pages. What lies outside of the
// last tile takes time, too. Where there are few columns, parts of the rows have sums of their own, however
// many threads there are, so that results are the same on all machines.
void plan_columns_on_cpu(Instance& t, std::int64_t batch, std::int64_t m, std::int64_t k) {
  constexpr int narrowest = 256, vector = 16;
  constexpr GpuSplit split = {.blocks_of_processor = 4, .least_steps = 64, .most = 32};
  constexpr double of_tile = 128;  // columns that take as long as to begin with a row
  const auto blocks = [&](const Instance& c) { return (m + c.m - 1) / c.m * batch; };
  Candidates<Instance, 4> candidates;
  t.k = 4;
  for (const int columns : {2048, 1024, 512, narrowest}) {
    t.m = columns;
    t.splits = planned_splits(blocks(t), k / t.k, split, planned_processors);
    candidates.add(t);
  }
  t = best_of(candidates, [&](const Instance& c) {
    const double busy = std::min<double>(1, static_cast<double>(blocks(c) * c.splits) / planned_processors);
    return static_cast<double>(blocks(c)) * (c.m + of_tile) / busy;
  });
  if (m <= narrowest) t.m = std::max(1, static_cast<int>((m + vector - 1) / vector)) * vector;
}

void run(const Bound<Gemv>& c, Launch& launch) {
  TensorRef a = c.formed("a");
  Instance t{.type = c.type("a"), .vector = c.type("x"), .out = c.type("out"), .transposed = c->transpose_a};
  if (a.stride(2) != 1 && a.size(2) > 1 && a.stride(1) == 1) {
    a = a.transpose(1, 2);
    t.transposed = !t.transposed;
  }
  const std::int64_t m = c.dim("m"), k = c.dim("k");
  if (!c.on_gpu()) {
    t.in_place = true;
    t.m = t.type.bytes() == 4 ? 8 : 32;
    t.k = piece_of_row(k, t.type);
    if (t.transposed) plan_columns_on_cpu(t, c.dim("batch"), m, k);
  } else {
    t.m = t.transposed ? 256 : 4;
    t.k = t.transposed ? 16 : k <= 512 ? 512 : k <= 1024 ? 1024 : 2048;
    // Tiles are as wide as rows, and as large as those of long rows where there are enough.
    const std::int64_t enough = 8 * planned_gpu_processors(c.call());
    if (!t.transposed && m / 8 * c.dim("batch") >= enough) t.m = std::max(4, 8192 / t.k);
    t.splits = planned_splits((m + t.m - 1) / t.m * c.dim("batch"), (k + t.k - 1) / t.k, gpu_table.vectors,
                              planned_gpu_processors(c.call()));
  }
  launch(t, program, {{"a", a}});
}

void formula(const Bound<Gemv>& c, Exact& exact) {
  const std::int64_t batch = c.dim("batch"), m = c.dim("m"), k = c.dim("k");
  const auto a = exact.array("a"), x = exact.array("x"), out = exact.array("out");
  for (std::int64_t z = 0; z < batch; ++z)
    for (std::int64_t i = 0; i < m; ++i) {
      double sum = 0;
      for (std::int64_t e = 0; e < k; ++e) sum += (c->transpose_a ? a(z, e, i) : a(z, i, e)) * x(z, e);
      out(z, i) = c->scale * sum;
    }
}

}  // namespace

const OperatorSchema& gemv_schema() {
  static const OperatorSchema table =
      Schema<Gemv>("gemv", "a matrix times a vector")
          .in(&Gemv::a, "a", "transpose_a ? [~batch] k m : [~batch] m k", products, "the matrix")
          .remedy("check transpose_a")
          .in(&Gemv::x, "x", "[~batch] k", products, "the vector")
          .option(&Gemv::transpose_a, "transpose_a", "a is [k, m]")
          .option(&Gemv::scale, "scale", "factor of the product", finite)
          .option(&Gemv::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&Gemv::out, "out", "[batch] m", chosen_by("out_dtype", floats.types, "x", bf16),
               "scale * a * x")
          .source("GEMV of the BLAS, level 2 (Dongarra et al. 1988)")
          .composed_gradient("products")
          .flops("2*batch*m*k")
          .examples({{"ragged", "m=37 k=300"},
                     {"transposed_f16", "m=300 k=37 f16 transpose_a scale=0.5"},
                     {"parts_e4m3", "batch=2 m=5 k=4200 e4m3"}})
          .measured({{"8192_bf16", "m=8192 k=8192 bf16"},
                     {"16384_f16", "m=16384 k=16384 f16"},
                     {"8192_transposed", "m=8192 k=8192 bf16 transpose_a"},
                     {"64x1024_bf16", "batch=64 m=1024 k=1024 bf16"}})
          .maps({{"shapes",
                  "bf16",
                  {"k=64", "k=512", "k=1000", "k=1024", "k=4096", "k=4097", "k=8192", "k=14336", "k=65536"},
                  {"m=8192", "m=8191", "m=1000", "m=65536", "m=8192 transpose_a", "m=8191 transpose_a",
                   "m=65536 transpose_a", "batch=16 m=1000"}}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops

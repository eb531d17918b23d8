#include "ops/pieces/rows.hpp"

#include <algorithm>
#include <limits>

#include "ops/schema/instance.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Fragment root_mean_square_factors(const Fragment& x, const Expr& eps) {
  Fragment factors = reduce_sum(map(x, [&](Index i, Index j) { return x(i, j) * x(i, j); }));
  const float share = 1.f / static_cast<float>(x.extent(1));
  parallel(factors, [&](Index i) { factors(i) = rsqrt(factors(i) * share + eps); });
  return factors;
}

void add_partials(const std::vector<PartialSums>& sums, int rows) {
  if (sums.empty()) return;
  constexpr int elements = 4096;
  const int columns = elements / rows;
  grid(ceildiv(sums.front().total.extent(0), columns), static_cast<int>(sums.size()),
       [&](Index block, Index number) {
         for (std::size_t i = 0; i < sums.size(); ++i)
           when(number == static_cast<int>(i), [&] {
             const Tensor& partials = sums[i].partials;
             Fragment all("all", {rows, columns}, f32, 0);
             serial(ceildiv(partials.extent(0), rows), [&](Index step) {
               Fragment tile = load(partials.at(step * rows, block * columns), {rows, columns});
               parallel(all, [&](Index r, Index j) { all(r, j) += tile(r, j); });
             });
             copy(reduce_sum(all, 0), sums[i].total.at(block * columns));
           });
       });
}

void add_partials(const Tensor& partials, const Tensor& total) { add_partials({{partials, total}}); }

// What a thread takes of shared memory at a time.
constexpr int bytes_of_run = 16;

Dim LongRows::features(const char* name) const {
  Dim result(name);
  if (whole) result.multiple_of(piece);
  return result;
}

LongRows divided_rows(std::int64_t row_bytes, bool on_gpu, int tensors) {
  constexpr std::int64_t bytes_of_a_processor = std::int64_t{1} << 18;
  constexpr int elements_of_a_thread = 16, fewest = 256, most = 1024;
  if (!on_gpu) return {.sums_of_rows = true};
  int threads = fewest;
  // A processor has registers for 1024 threads of these programs.
  while (threads < most && tensors * row_bytes * (most / threads) > bytes_of_a_processor) threads *= 2;
  return {threads * elements_of_a_thread / tensors, threads};
}

ExponentialSums::ExponentialSums(const LongRows& rows, DType type, bool weighted)
    : run(rows.sums_of_rows  ? rows.piece
          : rows.threads > 0 ? bytes_of_run / type.bytes()
                             : 1),
      top({rows.piece / run}, f32, std::numeric_limits<float>::lowest()),
      sum({rows.piece / run}, f32, 0),
      of_row_(rows.sums_of_rows) {
  const std::initializer_list<int> shape{rows.piece / run};
  if (weighted) along.emplace(shape, f32, 0);
}

void ExponentialSums::add(Fragment& x, const Fragment* weights) {
  if (of_row_) return add_row(x, weights);
  if (run == 1) return add_columns(x, weights);
  Fragment runs = x.reshape({top.extent(0), run});
  Fragment most = reduce_max(runs);
  parallel(most, [&](Index i) {
    most(i) = max(most(i), top(i));
    const Var change = exp2((top(i) - most(i)) * log2e);
    sum(i) *= change;
    if (along) (*along)(i) *= change;
    top(i) = most(i);
  });
  parallel(runs, [&](Index i, Index j) { runs(i, j) = exp2((runs(i, j) - most(i)) * log2e); });
  reduce_sum(runs, sum);
  if (!along) return;
  parallel(x, [&](Index j) { x(j) *= (*weights)(j); });
  reduce_sum(runs, *along);
}

void ExponentialSums::add_row(const Fragment& x, const Fragment* weights) {
  Fragment before = clone(top);
  const Expr most = reduce_max(x).scalar();
  parallel(top, [&](Index i) { top(i) = max(top(i), most); });
  const Expr largest = reduce_max(top).scalar();
  parallel(sum, [&](Index i) {
    const Var change = exp2((before(i) - largest) * log2e);
    sum(i) *= change;
    if (along) (*along)(i) *= change;
  });
  Fragment own({1, static_cast<int>(x.extent(0))}, f32);
  parallel(own, [&](Index i, Index j) { own(i, j) = exp2((x(j) - largest) * log2e); });
  reduce_sum(own, sum);
  if (!along) return;
  parallel(own, [&](Index i, Index j) { own(i, j) *= (*weights)(j); });
  reduce_sum(own, *along);
}

// One exponential for an element, whether it becomes the largest of its column or not.
void ExponentialSums::add_columns(const Fragment& x, const Fragment* weights) {
  parallel(x, [&](Index j) {
    const Var above = x(j) - top(j), other = exp2(-abs(above) * log2e);
    sum(j) = select(above > 0, sum(j) * other + 1.f, sum(j) + other);
    if (along)
      (*along)(j) = select(above > 0, (*along)(j)*other + (*weights)(j), (*along)(j) + other * (*weights)(j));
    top(j) = max(top(j), x(j));
  });
}

ExponentialSums::Total ExponentialSums::total() {
  Expr largest = reduce_max(top).scalar();
  parallel(sum, [&](Index j) { sum(j) *= exp2((top(j) - largest) * log2e); });
  if (along) parallel(*along, [&](Index j) { (*along)(j) *= exp2((top(j) - largest) * log2e); });
  // One after the other, so that the parts of both meet at once.
  if (!along) return {largest, reduce_sum(sum).scalar(), f32(0)};
  Fragment all = reduce_sum(sum), weighted = reduce_sum(*along);
  return {largest, all.scalar(), weighted.scalar()};
}

Kernel row_sum_kernel(const RowSumKernel& c) {
  constexpr int rows = 64, columns = 32, steps = 8;  // of a tile, and tiles of a range of rows
  return kernel(instance_name("row_sum", c), [&] {
    Dim batch("batch"), tokens("rows"), n("n");
    Tensor x = input("x", {batch, tokens, n}, c.type), total = output("total", {n}, f32);
    Expr ranges = ceildiv(tokens, rows * steps);
    Tensor partials = workspace("parts", {batch * ranges, n}, f32);
    grid(ceildiv(n, columns), ranges, batch, [&](Index j, Index number, Index b) {
      Fragment sum("sum", {columns}, f32, 0);
      serial(steps, [&](Index step) {
        Expr row = (number * steps + step) * rows;
        reduce_sum(load(x.slice(b).at(row, j * columns), {rows, columns}, f32), sum, 0);
      });
      copy(sum, partials.slice(b * ranges + number).at(j * columns));
    });
    add_partials(partials, total);
  });
}

}  // namespace tegula::ops

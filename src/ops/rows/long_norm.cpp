// Norms of rows that are longer than what a block holds. They are read twice, in pieces: first for their
// statistics, then from the end for the result.
#include "ops/pieces/kept_rows.hpp"
#include "ops/rows/norm.hpp"
#include "ops/rows/row_statistics.hpp"
#include "tegula/ops/layer_norm.hpp"
#include "tegula/ops/rms_norm.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// What the operators and their gradients share.
template <class Op>
struct LongNorm {
  const NormInstance<Op>& c;
  Dim rows{"rows"}, d = c.pieces->rows.features("d");
  Expr eps = scalar("eps", f32);

  Tensor rows_in(const char* name) const { return input(name, {rows, d}, c.type); }
  Tensor rows_out(const char* name) const { return output(name, {rows, d}, c.type); }
  // What is read of a row, the residual behind `own`.
  KeptRows kept(std::vector<KeptRows::Row> own, const Tensor& residual, const Expr& row) const {
    if (adds_residual<Op>) own.push_back({residual.slice(row)});
    return {c.pieces->rows, c.held.value_or(0), std::move(own)};
  }
  // values[0] becomes what is normalised: rounded as it is stored, so that its readers see what was.
  void add_residual(std::vector<Fragment>& values) const {
    if (adds_residual<Op>)
      parallel(values[0], [&](Index j) { values[0](j) = c.type(values[0](j) + values.back()(j)); });
  }
  RowStatistics statistics(bool of_gradient) const {
    return {c.pieces->rows, Expr(d), is_centred<Op>, of_gradient};
  }
  // The factor of a row.
  Expr factor(const RowTotals& total) const { return rsqrt(total.squares / f32(d) + eps); }
};

template <class Op>
void long_rows(const NormInstance<Op>& c) {
  const LongNorm<Op> n{c};
  Tensor x = n.rows_in("x"), out = n.rows_out("out");
  Tensor weight = c.weight ? input("weight", {n.d}, *c.weight) : x;
  Tensor bias = c.bias ? input("bias", {n.d}, *c.bias) : x;
  Tensor residual = adds_residual<Op> ? n.rows_in("residual") : x;
  Tensor sum = adds_residual<Op> ? n.rows_out("sum") : out;
  grid(n.rows, c.pieces->options(), [&](Index row) {
    const KeptRows kept = n.kept({{x.slice(row)}}, residual, row);
    RowStatistics statistics = n.statistics(false);
    kept.each([&](const Expr& first, std::vector<Fragment>& values) {
      n.add_residual(values);
      if (adds_residual<Op>) copy(values[0], sum.slice(row).at(first));
      statistics.add(first, first == kept.begin(), values[0]);
    });
    const RowTotals total = statistics.total();
    const Var factor = n.factor(total);
    kept.each_again([&](const Expr& first, std::vector<Fragment>& values) {
      n.add_residual(values);
      Fragment& own = values[0];
      std::optional<Fragment> weights, added;
      if (c.weight) weights.emplace(kept.beside(weight, first));
      if (c.bias) added.emplace(kept.beside(bias, first));
      parallel(own, [&](Index j) { own(j) = (own(j) - total.mean) * factor; });
      if (c.weight) parallel(own, [&](Index j) { own(j) *= (*weights)(j); });
      if (c.bias) parallel(own, [&](Index j) { own(j) += (*added)(j); });
      copy(own, out.slice(row).at(first));
    });
  });
}

// dx is that of norm.cpp's gradient. The sums of features have a grid of their own, which reads means and
// factors of rows that the first one has found.
template <class Op>
struct LongNormGradient {
  static constexpr int rows_of_step = 16, columns = 128, steps_of_range = 8, most_ranges = 64;

  const NormInstance<Op>& c;
  LongNorm<Op> n{c};
  Tensor dout = n.rows_in("dout"), x = n.rows_in("x");
  Tensor weight = c.weight ? input("weight", {n.d}, *c.weight) : x;
  Tensor dx = n.rows_out("dx");
  Tensor dweight = c.weight ? output("dweight", {n.d}, f32) : dx;
  Tensor residual = adds_residual<Op> ? n.rows_in("residual") : x;
  Tensor dresidual = adds_residual<Op> ? n.rows_out("dresidual") : dx;
  Tensor dsum = adds_residual<Op> ? n.rows_in("dsum") : dx;
  Tensor dbias = c.bias ? output("dbias", {n.d}, f32) : dx;
  Tensor means = c.weight ? workspace("means", {n.rows}, f32) : dx;
  Tensor factors = c.weight ? workspace("factors", {n.rows}, f32) : dx;
  // Few steps of a block would leave their loads one after the other, and many parts of the sums.
  Expr steps = ceildiv(n.rows, rows_of_step), ranges = min(max(steps / steps_of_range, 1), most_ranges);

  // values[1], the gradient of the result, becomes that of the normalised row.
  void given(const KeptRows& kept, const Expr& first, std::vector<Fragment>& values) const {
    n.add_residual(values);
    if (!c.weight) return;
    Fragment weights = kept.beside(weight, first);
    parallel(values[1], [&](Index j) { values[1](j) *= weights(j); });
  }
  void of_rows() const {
    grid(n.rows, c.pieces->options(), [&](Index row) {
      const KeptRows kept = n.kept({{x.slice(row)}, {dout.slice(row)}}, residual, row);
      RowStatistics statistics = n.statistics(true);
      kept.each([&](const Expr& first, std::vector<Fragment>& values) {
        given(kept, first, values);
        statistics.add(first, first == kept.begin(), values[0], &values[1]);
      });
      const RowTotals total = statistics.total();
      const Var r = n.factor(total), along = total.products / f32(n.d) * r * r;
      const Var before = total.given / f32(n.d);
      if (c.weight) means(row) = total.mean, factors(row) = r;
      kept.each_again([&](const Expr& first, std::vector<Fragment>& values) {
        given(kept, first, values);
        Fragment &own = values[0], &g = values[1];
        parallel(own, [&](Index j) { own(j) = r * (g(j) - before - (own(j) - total.mean) * along); });
        if (adds_residual<Op>) {
          Fragment more = kept.beside(dsum.slice(row), first);
          parallel(own, [&](Index j) { own(j) += more(j); });
          copy(own, dresidual.slice(row).at(first));
        }
        copy(own, dx.slice(row).at(first));
      });
    });
  }
  // Partial sums over rows, one for each block of rows, whose steps are `ranges` apart.
  void of_features() const {
    if (!c.weight && !c.bias) return;
    Tensor weight_partials = c.weight ? workspace("weight_parts", {ranges, n.d}, f32) : dx;
    Tensor bias_partials = c.bias ? workspace("bias_parts", {ranges, n.d}, f32) : dx;
    grid(ceildiv(n.d, columns), ranges, [&](Index block, Index number) {
      Fragment sum({rows_of_step, columns}, f32, 0), bias_sum({rows_of_step, columns}, f32, 0);
      Expr column = block * columns;
      const auto tile = [&](const Tensor& of, const Expr& row) {
        return load(of.at(row, column), {rows_of_step, columns}, f32);
      };
      pipelined(ceildiv(steps - number, ranges), {.stages = 3}, [&](Index step) {
        Expr row = (number + step * ranges) * rows_of_step;
        Fragment g = tile(dout, row);
        if (c.bias) parallel(bias_sum, [&](Index i, Index j) { bias_sum(i, j) += g(i, j); });
        if (!c.weight) return;
        Fragment values = tile(x, row);
        if (adds_residual<Op>) {
          Fragment added = tile(residual, row);
          parallel(values, [&](Index i, Index j) { values(i, j) = c.type(values(i, j) + added(i, j)); });
        }
        Fragment mean = load(means.at(row), {rows_of_step}), r = load(factors.at(row), {rows_of_step});
        parallel(sum, [&](Index i, Index j) { sum(i, j) += g(i, j) * (values(i, j) - mean(i)) * r(i); });
      });
      if (c.weight) copy(reduce_sum(sum, 0), weight_partials.slice(number).at(column));
      if (c.bias) copy(reduce_sum(bias_sum, 0), bias_partials.slice(number).at(column));
    });
    add_partials_of_parameters(c, {weight_partials, dweight}, {bias_partials, dbias}, few_partials);
  }
};

}  // namespace

template <class Op>
Kernel long_norm_program(const NormInstance<Op>& c) {
  return kernel(norm_name(c, ""), [&] { long_rows(c); });
}
template <class Op>
Kernel long_norm_gradient_program(const NormInstance<Op>& c) {
  return kernel(norm_name(c, "_backward"), [&] {
    const LongNormGradient<Op> gradient{c};
    gradient.of_rows();
    gradient.of_features();
  });
}

TEGULA_PROGRAMS_OF_NORMS(long_norm_program)
TEGULA_PROGRAMS_OF_NORMS(long_norm_gradient_program)

}  // namespace tegula::ops

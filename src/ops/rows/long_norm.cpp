// Norms of rows that are longer than what a block holds. They are read twice, in pieces: first for their
// statistics, then from the end for the result.
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
  Dim rows{"rows"}, d{"d"};
  PiecesOfRow pieces{*c.pieces, Expr(d)};
  Expr eps = scalar("eps", f32);

  Tensor rows_in(const char* name) const { return input(name, {rows, d}, c.type); }
  Tensor rows_out(const char* name) const { return output(name, {rows, d}, c.type); }
  // What is normalised: rounded as it is stored, so that its readers see what was.
  Fragment values(const Tensor& x, const Tensor& residual, const Expr& first) const {
    Fragment values = pieces.load(x, first);
    if (adds_residual<Op>) {
      Fragment added = pieces.load(residual, first);
      parallel(values, [&](Index j) { values(j) = c.type(values(j) + added(j)); });
    }
    return values;
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
  grid(n.rows, {.threads = c.pieces->threads}, [&](Index row) {
    RowStatistics statistics(n.pieces, is_centred<Op>, false);
    n.pieces.each([&](const Expr& number, const Expr& first) {
      Fragment values = n.values(x.slice(row), residual.slice(row), first);
      if (adds_residual<Op>) copy(values, sum.slice(row).at(first));
      statistics.add(number, first, values);
    });
    const RowTotals total = statistics.total();
    const Var factor = n.factor(total);
    n.pieces.each_from_the_end([&](const Expr& first) {
      Fragment values = n.values(x.slice(row), residual.slice(row), first);
      parallel(values, [&](Index j) { values(j) = (values(j) - total.mean) * factor; });
      if (c.weight) {
        Fragment weights = n.pieces.load(weight, first);
        parallel(values, [&](Index j) { values(j) *= weights(j); });
      }
      if (c.bias) {
        Fragment added = n.pieces.load(bias, first);
        parallel(values, [&](Index j) { values(j) += added(j); });
      }
      copy(values, out.slice(row).at(first));
    });
  });
}

// dx is that of norm.cpp's gradient. The sums of features have a grid of their own, which reads means and
// factors of rows that the first one has found.
template <class Op>
struct LongNormGradient {
  static constexpr int rows_of_step = 16, columns = 128, most_parts = 64;

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
  Expr steps = ceildiv(n.rows, rows_of_step), parts = min(steps, most_parts);

  Fragment given(const Expr& row, const Expr& first) const {
    Fragment g = n.pieces.load(dout.slice(row), first);
    if (c.weight) {
      Fragment weights = n.pieces.load(weight, first);
      parallel(g, [&](Index j) { g(j) *= weights(j); });
    }
    return g;
  }
  void of_rows() const {
    grid(n.rows, {.threads = c.pieces->threads}, [&](Index row) {
      RowStatistics statistics(n.pieces, is_centred<Op>, true);
      n.pieces.each([&](const Expr& number, const Expr& first) {
        Fragment values = n.values(x.slice(row), residual.slice(row), first), g = given(row, first);
        statistics.add(number, first, values, &g);
      });
      const RowTotals total = statistics.total();
      const Var r = n.factor(total), along = total.products / f32(n.d) * r * r;
      const Var before = total.given / f32(n.d);
      if (c.weight) means(row) = total.mean, factors(row) = r;
      n.pieces.each_from_the_end([&](const Expr& first) {
        Fragment values = n.values(x.slice(row), residual.slice(row), first), g = given(row, first);
        parallel(values,
                 [&](Index j) { values(j) = r * (g(j) - before - (values(j) - total.mean) * along); });
        if (adds_residual<Op>) {
          Fragment more = n.pieces.load(dsum.slice(row), first);
          parallel(values, [&](Index j) { values(j) += more(j); });
          copy(values, dresidual.slice(row).at(first));
        }
        copy(values, dx.slice(row).at(first));
      });
    });
  }
  // Parts of the sums over rows, one for each block of rows, whose steps are `parts` apart.
  void of_features() const {
    if (!c.weight && !c.bias) return;
    Tensor weight_parts = c.weight ? workspace("weight_parts", {parts, n.d}, f32) : dx;
    Tensor bias_parts = c.bias ? workspace("bias_parts", {parts, n.d}, f32) : dx;
    grid(ceildiv(n.d, columns), parts, [&](Index block, Index part) {
      Fragment sum({rows_of_step, columns}, f32, 0), bias_sum({rows_of_step, columns}, f32, 0);
      Expr column = block * columns;
      const auto tile = [&](const Tensor& of, const Expr& row) {
        return load(of.at(row, column), {rows_of_step, columns}, f32);
      };
      pipelined(ceildiv(steps - part, parts), {.stages = 3}, [&](Index step) {
        Expr row = (part + step * parts) * rows_of_step;
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
      if (c.weight) copy(reduce_sum(sum, 0), weight_parts.slice(part).at(column));
      if (c.bias) copy(reduce_sum(bias_sum, 0), bias_parts.slice(part).at(column));
    });
    std::vector<PartSums> sums;
    if (c.weight) sums.push_back({weight_parts, dweight});
    if (c.bias) sums.push_back({bias_parts, dbias});
    add_parts(sums);
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

template Kernel long_norm_program(const NormInstance<RmsNorm>& c);
template Kernel long_norm_gradient_program(const NormInstance<RmsNorm>& c);
template Kernel long_norm_program(const NormInstance<AddRmsNorm>& c);
template Kernel long_norm_gradient_program(const NormInstance<AddRmsNorm>& c);
template Kernel long_norm_program(const NormInstance<LayerNorm>& c);
template Kernel long_norm_gradient_program(const NormInstance<LayerNorm>& c);
template Kernel long_norm_program(const NormInstance<AddLayerNorm>& c);
template Kernel long_norm_gradient_program(const NormInstance<AddLayerNorm>& c);

}  // namespace tegula::ops

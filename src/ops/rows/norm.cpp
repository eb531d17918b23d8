#include "ops/rows/norm.hpp"

#include "ops/pieces/rows.hpp"
#include "tegula/ops/layer_norm.hpp"
#include "tegula/ops/rms_norm.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

template <class Op>
std::string norm_name(const NormInstance<Op>& c, const std::string& suffix) {
  return instance_name(std::string(adds_residual<Op> ? "add_" : "") + (is_centred<Op> ? "layer_norm" : "rms_norm") + suffix, c);
}

// Rows that are normalised: those of x, with what is added to them.
struct Rows {
  Tensor x, residual;
  bool adds = false;
  DType type = f32;

  // The sum is rounded as it is stored, so that its readers see what was normalised.
  Fragment load_rows(const Expr& row, int rows, int dim) const {
    Fragment values = load(x.at(row), {rows, dim}, f32);
    if (adds) {
      Fragment added = load(residual.at(row), {rows, dim}, f32);
      parallel(values, [&](Index i, Index j) { values(i, j) = type(values(i, j) + added(i, j)); });
    }
    return values;
  }
};

// Each row less its mean.
void centre(Fragment& values) {
  Fragment sums = reduce_sum(values);
  const float share = 1.f / static_cast<float>(values.extent(1));
  parallel(values, [&](Index i, Index j) { values(i, j) -= sums(i) * share; });
}

}  // namespace

template <class Op>
Kernel norm_program(const NormInstance<Op>& c) {
  return kernel(norm_name(c, ""), [&] {
    Dim rows("rows");
    Tensor x = input("x", {rows, c.dim}, c.type), out = output("out", {rows, c.dim}, c.type);
    Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
    Tensor bias = c.bias ? input("bias", {c.dim}, *c.bias) : x;
    const Rows all{x, adds_residual<Op> ? input("residual", {rows, c.dim}, c.type) : x, adds_residual<Op>, c.type};
    Tensor sum = adds_residual<Op> ? output("sum", {rows, c.dim}, c.type) : x;
    Expr eps = scalar("eps", f32);
    grid(ceildiv(rows, c.rows), [&](Index block) {
      Fragment values = all.load_rows(block * c.rows, c.rows, c.dim);
      if (adds_residual<Op>) copy(values, sum.at(block * c.rows));
      if (is_centred<Op>) centre(values);
      Fragment weights = c.weight ? load(weight.at(0), {c.dim}, f32) : Fragment({c.dim}, f32, 1),
               factors = root_mean_square_factors(values, eps);
      if (c.bias) {
        Fragment added = load(bias.at(0), {c.dim}, f32);
        parallel(values, [&](Index i, Index j) {
          values(i, j) = values(i, j) * factors(i) * weights(j) + added(j);
        });
      } else {
        parallel(values, [&](Index i, Index j) { values(i, j) = values(i, j) * factors(i) * weights(j); });
      }
      copy(values, out.at(block * c.rows));
    });
  });
}

namespace {

// With g = dout · weight, n the normalised row and r its factor: dx = r · (g − n · mean(g · n)), less the mean
// of g where rows are centred, and dweight is the sum of dout · n, of which every block has a part.
template <class Op>
struct NormGradient {
  const NormInstance<Op>& c;
  Dim rows{"rows"};
  Tensor dout = input("dout", {rows, c.dim}, c.type), x = input("x", {rows, c.dim}, c.type);
  Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
  Tensor dx = output("dx", {rows, c.dim}, c.type);
  Tensor dweight = c.weight ? output("dweight", {c.dim}, f32) : dx;
  Rows all{x, adds_residual<Op> ? input("residual", {rows, c.dim}, c.type) : x, adds_residual<Op>, c.type};
  Tensor dresidual = adds_residual<Op> ? output("dresidual", {rows, c.dim}, c.type) : dx;
  Tensor dsum = adds_residual<Op> ? input("dsum", {rows, c.dim}, c.type) : dx;
  Tensor dbias = c.bias ? output("dbias", {c.dim}, f32) : dx;
  Expr eps = scalar("eps", f32), blocks = ceildiv(rows, c.rows * c.steps);
  Tensor parts = workspace("parts", {blocks, c.dim}, f32);
  Tensor bias_parts = c.bias ? workspace("bias_parts", {blocks, c.dim}, f32) : dx;

  void tile(const Expr& row, const Fragment& weights, Fragment& sum, Fragment& bias_sum) const {
    const float share = 1.f / static_cast<float>(c.dim);
    Fragment values = all.load_rows(row, c.rows, c.dim);
    if (is_centred<Op>) centre(values);
    Fragment given = load(dout.at(row), {c.rows, c.dim}, f32), r = root_mean_square_factors(values, eps);
    if (c.bias) reduce_sum(given, bias_sum, 0);
    Fragment products = map(given, [&](Index i, Index j) { return given(i, j) * values(i, j) * r(i); });
    reduce_sum(products, sum, 0);
    parallel(products, [&](Index i, Index j) { products(i, j) *= weights(j); });
    Fragment along = reduce_sum(products);
    if (is_centred<Op>) {
      parallel(given, [&](Index i, Index j) { given(i, j) *= weights(j); });
      Fragment means = reduce_sum(given);
      parallel(values, [&](Index i, Index j) {
        Expr normal = values(i, j) * r(i);
        values(i, j) = r(i) * (given(i, j) - means(i) * share - normal * (along(i) * share));
      });
    } else {
      parallel(values, [&](Index i, Index j) {
        Expr normal = values(i, j) * r(i), mean = along(i) * share;
        values(i, j) = r(i) * (given(i, j) * weights(j) - normal * mean);
      });
    }
    if (adds_residual<Op>) {
      Fragment more = load(dsum.at(row), {c.rows, c.dim}, f32);
      parallel(values, [&](Index i, Index j) { values(i, j) += more(i, j); });
    }
    copy(values, dx.at(row));
    if (adds_residual<Op>) copy(values, dresidual.at(row));
  }
  void write() const {
    grid(blocks, [&](Index block) {
      Fragment sum({c.dim}, f32, 0),
          weights = c.weight ? load(weight.at(0), {c.dim}, f32) : Fragment({c.dim}, f32, 1);
      std::optional<Fragment> bias_sum;
      if (c.bias) bias_sum.emplace(std::vector<int>{c.dim}, f32, Loc::current()), clear(*bias_sum);
      serial(c.steps, [&](Index step) {
        tile((block * c.steps + step) * c.rows, weights, sum, bias_sum ? *bias_sum : sum);
      });
      copy(sum, parts.slice(block).at(0));
      if (bias_sum) copy(*bias_sum, bias_parts.slice(block).at(0));
    });
    if (c.weight) add_parts(parts, dweight);
    if (c.bias) add_parts(bias_parts, dbias);
  }
};

}  // namespace

template <class Op>
Kernel norm_gradient_program(const NormInstance<Op>& c) {
  return kernel(norm_name(c, "_backward"), [&] { NormGradient<Op>{c}.write(); });
}

template Kernel norm_program(const NormInstance<RmsNorm>& c);
template Kernel norm_gradient_program(const NormInstance<RmsNorm>& c);
template Kernel norm_program(const NormInstance<AddRmsNorm>& c);
template Kernel norm_gradient_program(const NormInstance<AddRmsNorm>& c);
template Kernel norm_program(const NormInstance<LayerNorm>& c);
template Kernel norm_gradient_program(const NormInstance<LayerNorm>& c);
template Kernel norm_program(const NormInstance<AddLayerNorm>& c);
template Kernel norm_gradient_program(const NormInstance<AddLayerNorm>& c);

}  // namespace tegula::ops

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
  const std::string name = is_centred<Op> ? "layer_norm" : "rms_norm";
  return instance_name((adds_residual<Op> ? "add_" : "") + name + suffix, c);
}

// Of the gradients' grid: one works while others wait for memory.
constexpr int blocks_of_a_processor = 4;

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
    Tensor residual = adds_residual<Op> ? input("residual", {rows, c.dim}, c.type) : x;
    Tensor sum = adds_residual<Op> ? output("sum", {rows, c.dim}, c.type) : x;
    Expr eps = scalar("eps", f32);
    grid(ceildiv(rows, c.rows), [&](Index block) {
      Fragment values = load(x.at(block * c.rows), {c.rows, c.dim}, f32);
      if (adds_residual<Op>) {
        // The sum is rounded as it is stored, so that its readers see what was normalised.
        Fragment added = load(residual.at(block * c.rows), {c.rows, c.dim}, f32);
        parallel(values, [&](Index i, Index j) { values(i, j) = c.type(values(i, j) + added(i, j)); });
        copy(values, sum.at(block * c.rows));
      }
      if (is_centred<Op>) centre(values);
      Fragment weights = c.weight ? load(weight.at(0), {c.dim}, f32) : Fragment({c.dim}, f32, 1),
               factors = root_mean_square_factors(values, eps);
      if (c.bias) {
        Fragment added = load(bias.at(0), {c.dim}, f32);
        parallel(values,
                 [&](Index i, Index j) { values(i, j) = values(i, j) * factors(i) * weights(j) + added(j); });
      } else {
        parallel(values, [&](Index i, Index j) { values(i, j) = values(i, j) * factors(i) * weights(j); });
      }
      copy(values, out.at(block * c.rows));
    });
  });
}

namespace {

// With g = dout · weight, n the normalised row and r the factor of a row: dx = r · (g − n · mean(g · n)),
// less the mean of g where rows are centred, and dweight is the sum of dout · n, of which every block has a
// part. Tiles keep their dtype, so that long rows fit the registers.
template <class Op>
struct NormGradient {
  const NormInstance<Op>& c;
  Dim rows{"rows"};
  Tensor dout = input("dout", {rows, c.dim}, c.type), x = input("x", {rows, c.dim}, c.type);
  Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
  Tensor dx = output("dx", {rows, c.dim}, c.type);
  Tensor dweight = c.weight ? output("dweight", {c.dim}, f32) : dx;
  Tensor residual = adds_residual<Op> ? input("residual", {rows, c.dim}, c.type) : x;
  Tensor dresidual = adds_residual<Op> ? output("dresidual", {rows, c.dim}, c.type) : dx;
  Tensor dsum = adds_residual<Op> ? input("dsum", {rows, c.dim}, c.type) : dx;
  Tensor dbias = c.bias ? output("dbias", {c.dim}, f32) : dx;
  Expr eps = scalar("eps", f32), tiles = ceildiv(rows, c.rows);
  Expr blocks = min(tiles, processors() * blocks_of_a_processor);
  Tensor parts = c.weight ? workspace("parts", {blocks, c.dim}, f32) : dx;
  Tensor bias_parts = c.bias ? workspace("bias_parts", {blocks, c.dim}, f32) : dx;
  float share = 1.f / static_cast<float>(c.dim);

  Fragment load_tile(const Tensor& from, const Expr& row) const {
    return load(from.at(row), {c.rows, c.dim});
  }
  // Means of rows and what they are multiplied by.
  void statistics(const Fragment& values, Fragment& mean, Fragment& r) const {
    if (is_centred<Op>) {
      reduce_sum(values.to(f32), mean);
      parallel(mean, [&](Index i) { mean(i) *= share; });
    }
    reduce_sum(map(values,
                   [&](Index i, Index j) {
                     Expr less = values(i, j) - mean(i);
                     return less * less;
                   }),
               r);
    parallel(r, [&](Index i) { r(i) = rsqrt(r(i) * share + eps); });
  }
  void tile(const Expr& row, const Fragment& weights, Fragment* sum, Fragment* bias_sum) const {
    Fragment values = load_tile(x, row), given = load_tile(dout, row);
    if (adds_residual<Op>) {
      Fragment added = load_tile(residual, row);
      parallel(values, [&](Index i, Index j) { values(i, j) += added(i, j); });
    }
    Fragment mean({c.rows}, f32, 0), r({c.rows}, f32, 0);
    statistics(values, mean, r);
    const auto normal = [&](Index i, Index j) { return (values(i, j) - mean(i)) * r(i); };
    const auto weighted = [&](Index i, Index j) { return given(i, j) * weights(j); };
    const auto product = [&](Index i, Index j) { return given(i, j) * (values(i, j) - mean(i)) * r(i); };
    if (bias_sum != nullptr) reduce_sum(given.to(f32), *bias_sum, 0);
    if (sum != nullptr) reduce_sum(map(given, product), *sum, 0);
    Fragment along = reduce_sum(map(given, [&](Index i, Index j) { return product(i, j) * weights(j); }));
    Fragment before({c.rows}, f32, 0);
    if (is_centred<Op>) reduce_sum(map(given, weighted), before);
    const auto gradient = [&](Index i, Index j) {
      return r(i) * (weighted(i, j) - before(i) * share - normal(i, j) * (along(i) * share));
    };
    if (adds_residual<Op>) {
      Fragment more = load_tile(dsum, row);
      parallel(values, [&](Index i, Index j) { values(i, j) = gradient(i, j) + more(i, j); });
      copy(values, dresidual.at(row));
    } else {
      parallel(values, [&](Index i, Index j) { values(i, j) = gradient(i, j); });
    }
    copy(values, dx.at(row));
  }
  void write() const {
    grid(blocks, [&](Index block) {
      std::optional<Fragment> sum, bias_sum;
      const std::vector<int> features{c.dim};
      if (c.weight) sum.emplace(features, f32, Loc::current()), clear(*sum);
      if (c.bias) bias_sum.emplace(features, f32, Loc::current()), clear(*bias_sum);
      Fragment weights = c.weight ? load(weight.at(0), {c.dim}) : Fragment({c.dim}, f32, 1);
      serial(ceildiv(tiles - block, blocks), [&](Index step) {
        tile((block + step * blocks) * c.rows, weights, sum ? &*sum : nullptr,
             bias_sum ? &*bias_sum : nullptr);
      });
      if (sum) copy(*sum, parts.slice(block).at(0));
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

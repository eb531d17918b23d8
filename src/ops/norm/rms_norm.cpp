#include "tegula/ops/rms_norm.hpp"

#include <algorithm>

#include "ops/pieces/rows.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = f32;
  std::optional<DType> weight;
  int dim = 0, rows = 1, steps = 1;  // rows of a tile, and tiles of a block of the gradients
  auto fields() const { return std::tuple(type, labelled("weight", weight), dim, rows, steps); }
};

// Blocks of the gradients have about `most` rows, those of the result one tile.
template <int most>
Instance plan(const Bound<RmsNorm>& c) {
  const int dim = c.small_dim("d"), rows = std::clamp(8192 / std::max(dim, 1), 1, 16);
  return {c.type("x"), c.type_if("weight"), dim, rows, std::max(most / rows, 1)};
}

Kernel forward(const Instance& c) {
  return kernel(instance_name("rms_norm", c), [&] {
    Dim rows("rows");
    Tensor x = input("x", {rows, c.dim}, c.type), out = output("out", {rows, c.dim}, c.type);
    Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
    Expr eps = scalar("eps", f32);
    grid(ceildiv(rows, c.rows), [&](Index block) {
      Fragment values = load(x.at(block * c.rows), {c.rows, c.dim}, f32);
      Fragment weights = c.weight ? load(weight.at(0), {c.dim}, f32) : Fragment({c.dim}, f32, 1),
               factors = root_mean_square_factors(values, eps);
      parallel(values, [&](Index i, Index j) { values(i, j) = values(i, j) * factors(i) * weights(j); });
      copy(values, out.at(block * c.rows));
    });
  });
}

// With g = dout · weight and r the factor of a row: dx = r · (g − x · r² · mean(g · x)), and dweight is the
// sum of dout · x · r, of which every block has a part.
Kernel backward(const Instance& c) {
  return kernel(instance_name("rms_norm_backward", c), [&] {
    Dim rows("rows");
    Tensor dout = input("dout", {rows, c.dim}, c.type), x = input("x", {rows, c.dim}, c.type);
    Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
    Tensor dx = output("dx", {rows, c.dim}, c.type);
    Tensor dweight = c.weight ? output("dweight", {c.dim}, f32) : dx;
    Expr eps = scalar("eps", f32), blocks = ceildiv(rows, c.rows * c.steps);
    Tensor parts = workspace("parts", {blocks, c.dim}, f32);
    grid(blocks, [&](Index block) {
      Fragment sum({c.dim}, f32, 0),
          weights = c.weight ? load(weight.at(0), {c.dim}, f32) : Fragment({c.dim}, f32, 1);
      serial(c.steps, [&](Index step) {
        Expr row = (block * c.steps + step) * c.rows;
        Fragment values = load(x.at(row), {c.rows, c.dim}, f32);
        Fragment given = load(dout.at(row), {c.rows, c.dim}, f32), r = root_mean_square_factors(values, eps);
        Fragment products = map(given, [&](Index i, Index j) { return given(i, j) * values(i, j) * r(i); });
        reduce_sum(products, sum, 0);
        parallel(products, [&](Index i, Index j) { products(i, j) *= weights(j); });
        Fragment along = reduce_sum(products);
        parallel(values, [&](Index i, Index j) {
          Expr normal = values(i, j) * r(i), mean = along(i) * (1.f / static_cast<float>(c.dim));
          values(i, j) = r(i) * (given(i, j) * weights(j) - normal * mean);
        });
        copy(values, dx.at(row));
      });
      copy(sum, parts.slice(block).at(0));
    });
    if (c.weight) add_parts(parts, dweight);
  });
}

template <class E>
void formula(const Bound<RmsNorm>& c, E& exact) {
  const std::int64_t rows = c.dim("rows"), d = c.dim("d");
  auto *x = exact.data("x"), *weight = exact.data_if("weight"), *out = exact.data("out");
  for (std::int64_t i = 0; i < rows; ++i, x += d, out += d) {
    typename E::Number sum = 0;
    for (std::int64_t j = 0; j < d; ++j) sum += x[j] * x[j];
    const auto r = exact.step(1 / sqrt(exact.step(sum / static_cast<double>(d)) + c->eps));
    for (std::int64_t j = 0; j < d; ++j) out[j] = exact.step(x[j] * r) * (weight ? weight[j] : 1);
  }
}

}  // namespace

const OperatorSchema& rms_norm_schema() {
  static const OperatorSchema table =
      Schema<RmsNorm>("rms_norm", "rows divided by their root mean square")
          .in(&RmsNorm::x, "x", "... d", floats, "rows")
          .in(&RmsNorm::weight, "weight", "d", floats, "factors of the features")
          .option(&RmsNorm::eps, "eps", "added to the mean of the squares", positive)
          .out(&RmsNorm::out, "out", "... d", same_as("x"), "x / sqrt(mean(x^2) + eps) * weight")
          .require("x", "d <= 16384", "at most 16384 features", "normalise parts of a row")
          .source("Zhang and Sennrich 2019, Root Mean Square Layer Normalization")
          .gradient("rms_norm_backward")
          .flops("4*rows*d")
          .examples(
              {{"ragged", "...=37 d=100 weight"}, {"batched_bf16", "...=2,7 d=512 bf16 weight:f32 eps=0.01"}})
          .measured({{"8192x4096_bf16", "...=8192 d=4096 bf16 weight"}})
          .run(plan<1>, forward, formula<Exact>);
  return table;
}

const OperatorSchema& rms_norm_backward_schema() {
  return gradient_table<plan<64>, backward, formula<Traced>>(rms_norm_schema(), "12*rows*d");
}

}  // namespace tegula::ops

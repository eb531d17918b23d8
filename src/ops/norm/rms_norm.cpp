#include "tegula/ops/rms_norm.hpp"

#include <algorithm>

#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor, tegula::Target;

struct Instance {
  DType type = f32;
  std::optional<DType> weight;
  int dim = 0, rows = 1, steps = 1;  // rows of a tile, and tiles of a block of the gradients
  auto fields() const { return std::tuple(type, labelled("weight", weight), dim, rows, steps); }
};

// Blocks of the gradients have about `most` rows, those of the result one tile.
template <class Op, int most>
Instance plan(const Bound<Op>& c) {
  const int dim = c.small_dim("d"), rows = std::clamp(8192 / std::max(dim, 1), 1, 16);
  return {c.type("x"), c.type_if("weight"), dim, rows, std::max(most / rows, 1)};
}

// 1 / sqrt(mean(x²) + eps) of every row.
Fragment factors_of(const Fragment& x, const Expr& eps) {
  Fragment squares({x.extent(0), x.extent(1)}, f32);
  parallel(squares, [&](Index i, Index j) { squares(i, j) = x(i, j) * x(i, j); });
  Fragment factors = reduce_sum(squares);
  const float share = 1.f / static_cast<float>(x.extent(1));
  parallel(factors, [&](Index i) { factors(i) = rsqrt(factors(i) * share + eps); });
  return factors;
}

Kernel forward(const Instance& c) {
  return kernel(instance_name("rms_norm", c), [&] {
    Dim rows("rows");
    Tensor x = input("x", {rows, c.dim}, c.type), out = output("out", {rows, c.dim}, c.type);
    Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
    Expr eps = scalar("eps", f32);
    grid(ceildiv(rows, c.rows), [&](Index block) {
      Fragment values({c.rows, c.dim}, f32), weights({c.dim}, f32);
      copy(x.at(block * c.rows), values);
      if (c.weight) copy(weight.at(0), weights);
      Fragment factors = factors_of(values, eps);
      parallel(values, [&](Index i, Index j) {
        Expr normal = values(i, j) * factors(i);
        values(i, j) = c.weight ? normal * weights(j) : normal;
      });
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
      Fragment sum({c.dim}, f32, 0), weights({c.dim}, f32, 1);
      if (c.weight) copy(weight.at(0), weights);
      serial(c.steps, [&](Index step) {
        Expr row = (block * c.steps + step) * c.rows;
        Fragment values({c.rows, c.dim}, f32), given({c.rows, c.dim}, f32), products({c.rows, c.dim}, f32);
        copy(x.at(row), values);
        copy(dout.at(row), given);
        Fragment r = factors_of(values, eps);
        parallel(products, [&](Index i, Index j) { products(i, j) = given(i, j) * values(i, j) * r(i); });
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
    if (!c.weight) return;
    grid(ceildiv(Expr(c.dim), 32), [&](Index block) {
      Fragment sum({32}, f32, 0), part({32}, f32);
      serial(blocks, [&](Index i) {
        copy(parts.slice(i).at(block * 32), part);
        parallel(sum, [&](Index j) { sum(j) += part(j); });
      });
      copy(sum, dweight.at(block * 32));
    });
  });
}

double factor_of(const double* x, std::int64_t d, double eps) {
  double sum = 0;
  for (std::int64_t j = 0; j < d; ++j) sum += x[j] * x[j];
  return 1 / std::sqrt(sum / static_cast<double>(d) + eps);
}

void formula(const Bound<RmsNorm>& c, Exact& exact) {
  const std::int64_t rows = c.dim("rows"), d = c.dim("d");
  const double *x = exact.data("x"), *weight = exact.data_if("weight");
  double* out = exact.data("out");
  for (std::int64_t i = 0; i < rows; ++i, x += d, out += d) {
    const double r = factor_of(x, d, c->eps);
    for (std::int64_t j = 0; j < d; ++j) out[j] = x[j] * r * (weight ? weight[j] : 1);
  }
}

void gradients(const Bound<RmsNormBackward>& c, Exact& exact) {
  const std::int64_t rows = c.dim("rows"), d = c.dim("d");
  const double *x = exact.data("x"), *dout = exact.data("dout"), *weight = exact.data_if("weight");
  double *dx = exact.data("dx"), *dweight = exact.data_if("dweight");
  for (std::int64_t i = 0; i < rows; ++i, x += d, dout += d, dx += d) {
    const double r = exact.rounded(factor_of(x, d, c->eps));
    double along = 0;
    const auto g = [&](std::int64_t j) { return dout[j] * (weight ? weight[j] : 1); };
    for (std::int64_t j = 0; j < d; ++j) along += g(j) * x[j] * r / static_cast<double>(d);
    for (std::int64_t j = 0; j < d; ++j) {
      const double normal = exact.rounded(x[j] * r);
      dx[j] = r * (g(j) - exact.rounded(normal * exact.rounded(along)));
      if (dweight) dweight[j] += dout[j] * x[j] * r;
    }
  }
}

constexpr const char* paper = "Zhang and Sennrich 2019, Root Mean Square Layer Normalization";
const std::vector<Example> examples{{"ragged", "...=37 d=100 weight"},
                                    {"batched_bf16", "...=2,7 d=512 bf16 weight:f32 eps=0.01"}};
const std::vector<Example> measured{{"8192x4096_bf16", "...=8192 d=4096 bf16 weight"}};

}  // namespace

const OperatorSchema& rms_norm_schema() {
  using Op = RmsNorm;
  static const OperatorSchema table =
      Schema<Op>("rms_norm", "rows divided by their root mean square")
          .in(&Op::x, "x", "... d", floats, "rows")
          .in(&Op::weight, "weight", "d", floats, "factors of the features")
          .option(&Op::eps, "eps", "added to the mean of the squares", positive)
          .out(&Op::out, "out", "... d", same_as("x"), "x / sqrt(mean(x^2) + eps) * weight")
          .require("x", "d <= 16384", "at most 16384 features", "normalise parts of a row")
          .source(paper)
          .gradient("rms_norm_backward")
          .flops("4*rows*d")
          .examples(examples)
          .measured(measured)
          .run(plan<Op, 1>, forward, formula);
  return table;
}

const OperatorSchema& rms_norm_backward_schema() {
  using Op = RmsNormBackward;
  static const OperatorSchema table =
      Schema<Op>("rms_norm_backward", "gradients of rms_norm")
          .in(&Op::dout, "dout", "... d", same_as("x"), "gradient of the result")
          .in(&Op::x, "x", "... d", floats, "rows")
          .in(&Op::weight, "weight", "d", floats, "factors of the features")
          .option(&Op::eps, "eps", "added to the mean of the squares", positive)
          .out(&Op::dx, "dx", "... d", same_as("x"), "gradient of x")
          .out(&Op::dweight, "dweight", "d", is(f32), "gradient of weight")
          .when("weight")
          .require("x", "d <= 16384", "at most 16384 features", "normalise parts of a row")
          .source(paper)
          .no_gradient("second derivatives are not computed")
          .flops("12*rows*d")
          .examples(examples)
          .measured(measured)
          .run(plan<Op, 64>, backward, gradients);
  return table;
}

tegula::Tensor rms_norm(const TensorRef& x, RmsNorm options) {
  options.x = x;
  return run_call(rms_norm_schema(), &options).output("out");
}

RmsNormGradients rms_norm_backward(const TensorRef& dout, const TensorRef& x, RmsNormBackward options) {
  options.dout = dout, options.x = x;
  const BoundCall call = run_call(rms_norm_backward_schema(), &options);
  return {call.output("dx"), call.output("dweight")};
}

}  // namespace tegula::ops

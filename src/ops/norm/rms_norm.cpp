#include "tegula/ops/rms_norm.hpp"

#include <algorithm>

#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

struct Instance {
  DType type = f32;
  std::optional<DType> weight;
  int dim = 0, rows = 1;
  auto fields() const { return std::tuple(type, labelled("weight", weight), dim, rows); }
};

lang::Kernel program(const Instance& c) {
  using namespace lang;
  return kernel(instance_name("rms_norm", c), [&] {
    Dim rows("rows");
    lang::Tensor x = input("x", {rows, c.dim}, c.type), out = output("out", {rows, c.dim}, c.type);
    lang::Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
    Expr eps = scalar("eps", f32);
    grid(ceildiv(rows, c.rows), [&](Index block) {
      Fragment values({c.rows, c.dim}, f32), squares({c.rows, c.dim}, f32), factors({c.dim}, f32);
      copy(x.at(block * c.rows), values);
      if (c.weight) copy(weight.at(0), factors);
      parallel(squares, [&](Index i, Index j) { squares(i, j) = values(i, j) * values(i, j); });
      Fragment sums = reduce_sum(squares);
      parallel(values, [&](Index i, Index j) {
        Expr y = values(i, j) * rsqrt(sums(i) * (1.f / static_cast<float>(c.dim)) + eps);
        values(i, j) = c.weight ? y * factors(j) : y;
      });
      copy(values, out.at(block * c.rows));
    });
  });
}

void run(const Bound<RmsNorm>& c, Launch& launch) {
  const int dim = c.small_dim("d");
  launch(Instance{c.type("x"), c.type_if("weight"), dim, std::clamp(8192 / dim, 1, 16)}, program);
}

void formula(const Bound<RmsNorm>& c, Exact& exact) {
  const std::int64_t rows = c.dim("rows"), d = c.dim("d");
  const double *x = exact.data("x"), *weight = c.has("weight") ? exact.data("weight") : nullptr;
  double* out = exact.data("out");
  for (std::int64_t i = 0; i < rows; ++i, x += d, out += d) {
    double sum = 0;
    for (std::int64_t j = 0; j < d; ++j) sum += x[j] * x[j];
    const double factor = 1 / std::sqrt(sum / static_cast<double>(d) + c->eps);
    for (std::int64_t j = 0; j < d; ++j) out[j] = x[j] * factor * (weight ? weight[j] : 1);
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
          .source("Zhang and Sennrich 2019, Root Mean Square Layer Normalization")
          .gradient("rms_norm_backward")
          .flops("4*rows*d")
          .examples(
              {{"ragged", "...=37 d=100 weight"}, {"batched_bf16", "...=2,7 d=512 bf16 weight:f32 eps=0.01"}})
          .measured({{"8192x4096_bf16", "...=8192 d=4096 bf16 weight"}})
          .run(run, formula);
  return table;
}

Tensor rms_norm(const TensorRef& x, RmsNorm options) {
  options.x = x;
  return run_call(rms_norm_schema(), &options).output("out");
}

}  // namespace tegula::ops

#include "ops/experts/steps.hpp"

#include "ops/experts/rows.hpp"

namespace tegula::ops {

ExpertSteps::ExpertSteps(const BoundCall& call, Launch& launch, const ExpertUnit& unit)
    : call_(call),
      launch_(launch),
      unit_(unit),
      type_(call.type("x")),
      tokens_(call.dim("tokens")),
      topk_(call.dim("topk")),
      groups_(call.dim("groups")),
      pairs_(tokens_ * topk_),
      order_(launch.scratch({pairs_}, i32)),
      places_(launch.scratch({tokens_, topk_}, i32)),
      offsets_(launch.scratch({groups_ + 1}, i32)) {}

GroupedProduct ExpertSteps::extents(std::int64_t n, std::int64_t k) const {
  return {groups_, (pairs_ + groups_ - 1) / groups_, n, k};
}

void ExpertSteps::sort() {
  launch_(planned_sort(groups_), moe_sort_program,
          {{"experts", call_.rows("experts", 2)},
           {"order", order_},
           {"places", places_.reshape({pairs_})},
           {"offsets", offsets_}});
}

Tensor ExpertSteps::permuted(const TensorRef& rows_of_tokens) {
  const Tensor rows = scratch(rows_of_tokens.size(1), type_);
  launch_(planned_rows(type_, rows_of_tokens.size(1), topk_), moe_scatter_program,
          {{"x", rows_of_tokens}, {"places", places_}, {"out", rows}});
  return rows;
}

void ExpertSteps::unpermute(const TensorRef& y, bool weighted, const TensorRef& out) {
  MoeRowsKernel kernel = planned_sums(type_, y.size(1), topk_);
  if (weighted) kernel.weights = call_.type("weights");
  launch_(kernel, moe_unpermute_program, {{"y", y}, {"places", places_}, {"out", out}});
}

Tensor ExpertSteps::activated(const TensorRef& x) {
  const std::int64_t d = x.size(1) / 2;
  const Tensor out = scratch(d, type_);
  launch_(planned_unit(type_, unit_.unit, unit_.interleaved, d), gated_unit_program,
          {{"x", x}, {"out", out}});
  return out;
}

Tensor ExpertSteps::activation_gradient(const TensorRef& dout, const TensorRef& x) {
  const std::int64_t d = x.size(1) / 2;
  const Tensor dx = scratch(2 * d, type_);
  launch_(planned_unit(type_, unit_.unit, unit_.interleaved, d), gated_unit_gradient,
          {{"dout", dout}, {"x", x}, {"dx", dx}});
  return dx;
}

Tensor ExpertSteps::product(const TensorRef& rows, const TensorRef& b, const std::optional<TensorRef>& bias,
                            bool transpose_b) {
  const std::int64_t n = b.size(transpose_b ? 1 : 2);
  const Tensor out = scratch(n, type_);
  GroupedGemmKernel kernel{
      .type = type_, .out = type_, .form = {.offsets = true}, .transpose_b = transpose_b};
  if (bias) kernel.bias = bias->dtype;
  launch_(planned(kernel, extents(n, rows.size(1)), launch_, rows, b, out), grouped_gemm_program,
          {{"a", rows},
           {"b", b},
           {"bias", bias.value_or(b)},
           {"offsets", offsets_},
           {"max_rows", 0},
           {"out", out}});
  return out;
}

}  // namespace tegula::ops

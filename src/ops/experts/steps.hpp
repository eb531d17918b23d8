// What experts consist of: launches of the programs of other operators, one after the other.
#pragma once
#include "ops/grouped_gemm/kernel.hpp"
#include "ops/rows/gated_unit_kernel.hpp"
#include "ops/schema/launch.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

struct ExpertUnit {
  GatedUnit unit = GatedUnit::silu;
  bool interleaved = false;
};

// The steps of a call with x [tokens, d], experts and weights [tokens, topk]. All rows are those of pairs,
// sorted by expert.
class ExpertSteps {
 public:
  ExpertSteps(const BoundCall& call, Launch& launch, const ExpertUnit& unit);

  // order, places and offsets.
  void sort();
  // x, or other rows of tokens, for every pair.
  Tensor permuted(const TensorRef& rows_of_tokens);
  // unit(x), [pairs, inner], and the gradient of x for that of the result.
  Tensor activated(const TensorRef& x);
  Tensor activation_gradient(const TensorRef& dout, const TensorRef& x);
  // Sums over the experts of every token, with their weights or without, into `out`.
  void unpermute(const TensorRef& y, bool weighted, const TensorRef& out);
  // rows · b[group] + bias[group], of x's dtype; b is [groups, n, k], or [groups, k, n] unless it is
  // transposed.
  Tensor product(const TensorRef& rows, const TensorRef& b, const std::optional<TensorRef>& bias,
                 bool transpose_b = true);

  // For products: groups, rows of a usual one, n and k.
  GroupedProduct extents(std::int64_t n, std::int64_t k) const;
  Tensor scratch(std::int64_t columns, DType type) { return launch_.scratch({pairs_, columns}, type); }
  std::int64_t pairs() const { return pairs_; }
  DType type() const { return type_; }
  const Tensor& order() const { return order_; }
  const Tensor& offsets() const { return offsets_; }
  const BoundCall& call() const { return call_; }
  Launch& launch() { return launch_; }

 private:
  const BoundCall& call_;
  Launch& launch_;
  ExpertUnit unit_;
  DType type_;
  std::int64_t tokens_, topk_, groups_, pairs_;
  Tensor order_, places_, offsets_;
};

// The tensor with a leading dim of 1.
inline TensorRef of_one_group(TensorRef tensor) {
  tensor.shape.insert(tensor.shape.begin(), 1);
  tensor.strides.insert(tensor.strides.begin(), 0);
  return tensor;
}

template <class Op>
ExpertUnit unit_of(const Op& op) {
  return {op.unit, op.interleaved};
}

// The options of a table with a unit between two products.
template <class Op>
void add_unit(Schema<Op>& table) {
  table.option(&Op::unit, "unit", "gated unit between the two products")
      .option(&Op::alpha, "alpha", "swiglu_oai only: factor of the gate inside the sigmoid", finite)
      .option(&Op::limit, "limit", "swiglu_oai only: limit to which gates and values are clamped", positive)
      .option(&Op::interleaved, "interleaved",
              "swiglu_oai only: the rows of w1 alternate between gates and values")
      .require(
          "interleaved",
          [](const Bound<Op>& c) { return !c->interleaved || c->unit == GatedUnit::swiglu_oai; },
          "swiglu_oai as the unit", "reorder the rows of w1");
}
// The inputs of a table whose tokens are routed to experts.
template <class Op>
void add_routing(Schema<Op>& table) {
  table
      .in(&Op::experts, "experts", "tokens topk", index,
          "experts of each token; a negative number is skipped")
      .range("-1", "groups")
      .converts()
      .in(&Op::weights, "weights", "tokens topk", floats, "factors of the experts' results")
      .require("experts", "topk <= 256", "at most 256 experts of a token", "add results of fewer")
      .require("w1", "groups >= 1", "an expert or more", "give experts")
      .require("w1", "groups <= 8192", "at most 8192 experts", "give fewer");
}

}  // namespace tegula::ops

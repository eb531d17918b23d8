// The registry's entry of each operator, and what the entries share.
#pragma once
#include "ops/registry.hpp"

namespace tegula::ops {

Operator registered_block_sparse_attention();
Operator registered_block_sparse_attention_backward();
Operator registered_nsa_selected_attention();
Operator registered_nsa_selected_attention_backward();

// The input, which must be there; null if an optional one is not.
const Tensor& required(const Tensors& inputs, const std::string& name);
const Tensor* optional_input(const Tensors& inputs, const std::string& name);
inline std::optional<TensorRef> optional_ref(const Tensors& inputs, const std::string& name) {
  const Tensor* tensor = optional_input(inputs, name);
  return tensor ? std::optional<TensorRef>(tensor->ref()) : std::nullopt;
}
std::optional<float> optional_real(const Options& options, const std::string& name);

double bytes_of(const Tensors& tensors);
// What rounding in `type` and in f32 sums of about `terms` terms of size 1 may cost.
Operator::Tolerance rounding_tolerance(DType type, double terms);
// The same for gradients: weights and their gradients are rounded, and the errors add up over the rows.
Operator::Tolerance gradient_tolerance(DType type, double terms);

}  // namespace tegula::ops

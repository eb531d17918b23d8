// The largest elements of rows, and gates computed from them.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

enum class TopkGates { none, softmax, sigmoid };

struct Topk {
  TensorRef x = {};        // [..., n], f32, f16 or bf16
  std::int64_t count = 0;  // elements per row, at most 256 and at most n
  TopkGates gates =
      TopkGates::none;      // applied to the selected elements: softmax over them, or sigmoid of each
  bool normalized = false;  // divide sigmoids by their sum
  std::optional<TensorRef> values = {}, indices = {};
  Target target = Target::automatic();
};
struct TopkResult {
  Tensor values;   // [..., count], of x's dtype
  Tensor indices;  // [..., count], i32
};

// In descending order; of equal elements the first comes first, and NaN counts as the largest.
TopkResult topk(const TensorRef& x, std::int64_t count, Topk options = {});

}  // namespace tegula::ops
TEGULA_API_END

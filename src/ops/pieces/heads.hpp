// Views of attention tensors in the form of the tile programs.
#pragma once
#include "ops/schema/bound.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/ops/heads.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> choice_names<Layout>{"bshd",
                                                                                                    "bhsd"};

// [batch, sequence, head, feature], whatever the layout.
TensorRef as_bshd(const TensorRef& tensor, Layout layout);
// Dimension `dim`, the query heads, becomes [heads / group, group].
TensorRef split_heads(const TensorRef& tensor, int dim, std::int64_t group);

// q, k, v of a checked call with dimensions in the order [(batch,) tokens, heads, features].
struct HeadTensors {
  TensorRef q, k, v;
  std::int64_t heads = 0, kv_heads = 0;

  std::int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  int dim() const { return static_cast<int>(q.size(-1)); }
  int dim_v() const { return static_cast<int>(v.size(-1)); }
};
HeadTensors head_tensors(const BoundCall& call);

// What the program multiplies raw scores by: see attention_kernel.
float program_scale(float scale, float softcap);

}  // namespace tegula::ops

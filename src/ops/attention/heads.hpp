// Views of attention tensors in the form of the tile programs, and the checks that dense and sparse share.
#pragma once
#include "ops/common/arguments.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/ops/attention.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 2> choice_names<Layout>{"bshd",
                                                                                                    "bhsd"};

inline constexpr int largest_head_dim = 512;

// [batch, sequence, head, feature], whatever the layout.
TensorRef as_bshd(const TensorRef& tensor, Layout layout);
// Dimension `dim`, the query heads, becomes [heads / group, group].
TensorRef split_heads(const TensorRef& tensor, int dim, std::int64_t group);

// q, k, v with dimensions in the order [(batch,) tokens, heads, features], checked against each other.
struct HeadTensors {
  TensorRef q, k, v;
  std::int64_t heads = 0, kv_heads = 0;

  std::int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
  int dim() const { return static_cast<int>(q.size(-1)); }
  int dim_v() const { return static_cast<int>(v.size(-1)); }
};
HeadTensors check_heads(const Arguments& args, const TensorRef& q, const TensorRef& k, const TensorRef& v,
                        int rank, Layout layout);

// Outputs of a call in the caller's layout and in that of the program.
struct HeadOutputs {
  AttentionResult result;
  TensorRef out, lse;
};
HeadOutputs make_outputs(const Arguments& args, const HeadTensors& tensors, Layout layout,
                         const std::optional<TensorRef>& out, const std::optional<TensorRef>& lse);

void check_softcap(const Arguments& args, float softcap);
void check_tiles(const Arguments& args, const AttentionTiles& tiles);
// What the program multiplies raw scores by: see attention_kernel.
float program_scale(float scale, float softcap);

}  // namespace tegula::ops

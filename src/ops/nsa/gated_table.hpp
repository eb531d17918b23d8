// What the tables of attention over selected blocks whose kernel sums all branches, and of its gradients,
// share.
#pragma once
#include <cmath>

#include "ops/nsa/table.hpp"
#include "tegula/ops/nsa_gated_attention.hpp"

namespace tegula::ops {

struct NsaGated : NsaGatedOptions {
  TensorRef q = {}, k = {}, v = {}, block_indices = {}, compressed = {}, gates = {};
};

struct NsaGatedBackward : NsaGatedOptions, NsaGatedBackwardOptions {
  TensorRef dout = {}, q = {}, k = {}, v = {}, block_indices = {}, compressed = {}, gates = {};
  TensorRef selected = {}, lse = {};
  // Not where the forward call writes its own.
  using NsaGatedBackwardOptions::window_lse, NsaGatedBackwardOptions::window_out;
};

template <class Op>
void add_gates(Schema<Op>& table) {
  table.in(&Op::compressed, "compressed", out_dims, same_as("q"), "attention over compressed entries")
      .unit_stride()
      .ordered()
      .in(&Op::gates, "gates", token_dims("queries", query_heads, "branches"), floats,
          "logits: a branch counts by the sigmoid of its gate")
      .ordered();
}

// Stands behind the options.
template <class Op>
void add_branches(Schema<Op>& table) {
  table
      .option(&Op::keep_branches, "keep_branches",
              "the result and the lse of the selected branch, and of the window, are results, too: gradients "
              "need them")
      .require("gates", "branches == (window > 0 ? 3 : 2)",
               "a gate for each branch, in the order compressed, selected, window",
               "give two gates, or three with a window");
}

inline double sigmoid_of(double logit) { return 1 / (1 + std::exp(-logit)); }

// Visits the indices of a tensor's elements.
template <class F>
void each_element(const Shape& shape, const F& visit) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  Shape at(shape.size());
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    for (std::size_t n = shape.size(); n-- > 0; rest /= shape[n]) at[n] = rest % shape[n];
    visit(at);
  }
}

inline Shape with_last(Shape at, std::int64_t last) {
  at.back() = last;
  return at;
}

inline std::vector<Example> gated_examples() {
  return {{"small",
           "batch=1 queries=7 keys=7 kv_heads=1 group=2 d=8 d_v=4 selecting=1 entries=3 "
           "block_size=2 branches=2"},
          {"window_bhsd_bf16",
           "batch=2 queries=70 keys=70 kv_heads=2 group=16 d=64 d_v=64 bf16 gates:f32 selecting=2 "
           "entries=4 block_size=16 window=20 branches=3 layout=bhsd"},
          {"packed_f16",
           "sequences=3 queries=90 keys=90 kv_heads=2 group=3 d=16 d_v=24 f16 "
           "selecting=6 entries=3 block_size=8 window=9 branches=3 cu_seqlens_q cu_seqlens_k"}};
}

inline std::vector<Example> gated_measured() {
  return {{"65536_bf16",
           "batch=1 queries=65536 keys=65536 kv_heads=4 group=16 d=128 d_v=128 bf16 selecting=4 "
           "entries=16 window=512 branches=3"}};
}

// The same calls, which keep branches.
inline std::vector<Example> keeping(std::vector<Example> examples) {
  for (Example& example : examples) example.name += "_kept", example.text += " keep_branches";
  return examples;
}

}  // namespace tegula::ops

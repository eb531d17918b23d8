// What the tables of attention over selected blocks that sums all branches, and of its gradients, share.
#pragma once
#include "ops/nsa/table.hpp"
#include "tegula/ops/nsa_gated_attention.hpp"

namespace tegula::ops {

struct NsaGated : NsaSelected {
  TensorRef compressed = {}, gates = {};
};

struct NsaGatedBackward : NsaSelectedOptions, NsaGatedBackwardOptions {
  TensorRef dout = {}, q = {}, k = {}, v = {}, block_indices = {}, compressed = {}, gates = {};
};

template <class Op>
void add_gates(Schema<Op>& table) {
  table.in(&Op::compressed, "compressed", out_dims, same_as("q"), "attention over compressed entries")
      .ordered()
      .in(&Op::gates, "gates", token_dims("queries", query_heads, "branches"), floats,
          "logits: a branch counts by the sigmoid of its gate")
      .ordered();
}

// Stands behind the options.
template <class Op>
void add_branches(Schema<Op>& table) {
  table.require("gates", "branches == (window > 0 ? 3 : 2)",
                "a gate for each branch, in the order compressed, selected, window",
                "give two gates, or three with a window");
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

}  // namespace tegula::ops

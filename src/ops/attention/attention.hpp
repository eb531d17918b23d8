// Dense attention and its gradients as tables.
#pragma once
#include <algorithm>
#include <string>

#include "ops/attention/kernel.hpp"
#include "ops/attention/plan.hpp"
#include "ops/pieces/attention_table.hpp"
#include "ops/pieces/room.hpp"
#include "ops/schema/functions.hpp"
#include "tegula/ops/attention_backward.hpp"

namespace tegula::ops {

// The operators' structs, by which tests ask for their formulas.
struct Attention : AttentionOptions {
  TensorRef q = {}, k = {}, v = {};
};

// What the options say of results of the forward has no meaning here.
struct AttentionBackward : AttentionOptions, AttentionBackwardOptions {
  TensorRef dout = {}, q = {}, k = {}, v = {}, out = {}, lse = {};
};

const OperatorSchema& attention_schema();
const OperatorSchema& attention_backward_schema();

// Whom a query sees, and sinks, beside what all attention has.
template <class Op>
void add_dense(Schema<Op>& table) {
  const OptionRule keys{-1, {}, false, "a number of keys, or -1 for all", "leave it out"};
  table
      .in(&Op::sinks, "sinks", query_heads, floats,
          "one logit per head that is added to the sum of the softmax but has no value")
      .remedy("give every head of q a sink")
      .with(add_scale<Op>)
      .option(&Op::causal, "causal", "hides later keys; the last query is aligned with the last key")
      .option(&Op::left, "left", "keys before its position that a query sees; -1: all of them", keys)
      .option(&Op::right, "right",
              "keys after its position that a query sees; -1: all of them; causal implies 0", keys)
      .with(add_softcap<Op>)
      .with(add_packing<Op>)
      .with(add_tiles<Op>);
}

// Pairs of a query and a key that it sees, of all heads, for a table's amount of work. Packed sequences count
// as equally long.
std::string seen_pairs();

// What a call fixes of a program, but for the plan.
template <class Op>
AttentionKernel kernel_of(const Bound<Op>& c) {
  const DType compute = multiplied_type(c.type("q"), c.on_gpu());
  const int dim = c.small_dim("d"), dim_v = c.small_dim("d_v");
  return {.type = c.type("q"),
          .compute = compute,
          .dim = dim,
          .dim_v = dim_v,
          .padded = wide_tile_features(dim, dim_v, compute),
          .left = c->left >= 0,
          .right = c->causal || c->right >= 0,
          .softcap = score_cap(c->softcap),
          .varlen = c.has("cu_seqlens_q"),
          .sinks = c.type_if("sinks")};
}

// The window and the scale as programs get them.
struct ProgramOptions {
  float scale = 1;
  std::int64_t left = 0, right = 0;
};
ProgramOptions program_options(const AttentionOptions& options, double scale);

template <class Op>
AttentionProblem problem_of(const Bound<Op>& c, const AttentionKernel& kernel) {
  const bool packed = c.has("cu_seqlens_q");
  const ProgramOptions window = program_options(*c, 1);
  AttentionProblem problem{.sequences = packed ? 1 : c.dim("batch"),
                           .heads = c.dim("kv_heads") * c.dim("group"),
                           .group = c.dim("group"),
                           .queries = c.dim("longest_q"),
                           .keys = c.dim("keys"),
                           .packed = packed ? std::max<std::int64_t>(c.dim("sequences"), 1) : 1,
                           .all_queries = packed ? c.dim("queries") : c.dim("batch") * c.dim("queries"),
                           .seen = c.dim("keys"),
                           .left = kernel.left ? window.left : -1,
                           .right = kernel.right ? window.right : -1,
                           .dim = kernel.padded.of(kernel.dim),
                           .dim_v = kernel.padded.of_v(kernel.dim_v),
                           .by_pairs = !c.on_gpu() && kernel.compute == bf16};
  if (c.on_gpu()) problem.room = room_of_block(c.call());
  if (c->left >= 0 && (c->causal || c->right >= 0))
    problem.seen = std::min(problem.keys, window.left + window.right + 1);
  else if (c->left >= 0)
    problem.seen = std::min(problem.keys, window.left + problem.queries);
  return problem;
}

}  // namespace tegula::ops

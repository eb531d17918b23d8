// Block-sparse attention: its table and its formula.
#include "ops/block_sparse/maps.hpp"
#include "ops/block_sparse/table.hpp"
#include "ops/lists/check_indices.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

namespace {

void check(const Bound<BlockSparse>& c, const BlockSparseCall& call, Launch& launch) {
  if (!c->check_indices || !c.has("indices")) return;
  IndexCheck check{"indices", c["indices"].transpose(1, 2)};
  if (c.has("counts")) check.counts = c["counts"].transpose(1, 2);
  check.block = c->k_block_size, check.keys = c.dim("keys");
  check.heads_first = true, check.ascending = c->ascending;
  check.q_begin = call.q_begin, check.k_begin = call.k_begin, check.longest = call.longest;
  check.q_block = c->q_block_size;
  check_indices(check, launch);
}

void run(const Bound<BlockSparse>& c, Launch& launch) {
  const BlockSparseCall call = block_sparse_call(c.call(), *c, c.on_gpu());
  check(c, call, launch);
  run_block_sparse(call, launch);
}

void formula(const Bound<BlockSparse>& c, Exact& exact) {
  const AttentionResult result = reference::block_sparse_attention(c["q"], c["k"], c["v"], *c, exact.steps());
  exact.set("out", result.out);
  exact.set("lse", result.lse);
}

double operations(const Bound<BlockSparse>& c) {
  return 2 * chosen_pairs(c.call(), *c) * static_cast<double>(c.dim("d") + c.dim("d_v"));
}

}  // namespace

const OperatorSchema& block_sparse_attention_schema() {
  using Op = BlockSparse;
  static const OperatorSchema table =
      Schema<Op>("block_sparse_attention",
                 "attention in which every block of queries sees selected blocks of keys")
          .with(add_heads<Op>)
          .with(add_choice<Op>)
          .option(&Op::ascending, "ascending",
                  "promises that used entries of indices ascend and are blocks of which the queries see "
                  "keys; a GPU "
                  "then need not sort them")
          .require("ascending", "ascending <= indices", "indices", "leave it out")
          .option(&Op::check_indices, "check_indices",
                  "refuses used entries that are neither -1 nor a block; the call then waits for the GPU")
          .with(add_attention_results<Op>)
          .source(
              "after MagiAttention's block_sparse_attn (SandAI 2026), with masks, counts and causality in "
              "addition")
          .gradient("block_sparse_attention_backward")
          .flops("2*batch*queries*heads*(mask ? keys : min(entries*k_block_size, keys))*(d + d_v)")
          .counted(operations)
          .examples(block_sparse_examples(""))
          .measured(block_sparse_measured())
          .built_in({"batch=1 queries=64 keys=64 kv_heads=1 group=1 choosers=1 entries=1 indices "
                     "{d=64 d_v=64|d=128 d_v=128} {f32|f16|bf16} {|causal}",
                     "batch=1 queries=64 keys=64 kv_heads=1 group=1 choosers=1 entries=1 indices d=28 d_v=3"})
          .rival("attention")
          .maps(block_sparse_maps())
          .run(on_moved_rows<Op, run>, formula);
  return table;
}

AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       int q_block_size, int k_block_size, const TensorRef& topk_indices) {
  BlockSparseOptions options;
  options.q_block_size = q_block_size, options.k_block_size = k_block_size;
  options.indices = topk_indices;
  return block_sparse_attention(q, k, v, options);
}

}  // namespace tegula::ops

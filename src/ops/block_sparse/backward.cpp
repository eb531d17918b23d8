// The gradients of block-sparse attention: their table and formula.
#include "ops/block_sparse/backward_call.hpp"
#include "ops/block_sparse/maps.hpp"
#include "ops/block_sparse/table.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

namespace {

void run(const Bound<BlockSparseBackward>& c, Launch& launch) {
  run_block_sparse_backward(block_sparse_backward_call(c, c.on_gpu()), launch);
}

// The results of the forward are formed anew.
void formula(const Bound<BlockSparseBackward>& c, Exact& exact) {
  const AttentionGradients gradients = reference::block_sparse_attention_backward(
      c["dout"], c["q"], c["k"], c["v"], *c, c->dlse, exact.steps());
  exact.set("dq", gradients.dq);
  exact.set("dk", gradients.dk);
  exact.set("dv", gradients.dv);
}

// Gradients of scores, dq, dk and dv for every pair that the forward has, at least.
double backward_operations(const Bound<BlockSparseBackward>& c) {
  return 2 * chosen_pairs(c.call(), *c) * static_cast<double>(3 * c.dim("d") + 2 * c.dim("d_v"));
}

// Programs count the entries of a head, of all batches or sequences together.
bool has_room(const Bound<BlockSparseBackward>& c) {
  const TensorRef& choice = c.has("mask") ? c["mask"] : c["indices"];
  return static_cast<double>(choice.size(0)) * static_cast<double>(choice.size(2)) *
             static_cast<double>(choice.size(3)) <
         2147483648.0;
}

std::vector<Example> examples() {
  std::vector<Example> all = block_sparse_examples("dlse");
  all.push_back({all.back().name + "_any_order", all.back().text + " deterministic=false"});
  return all;
}

}  // namespace

const OperatorSchema& block_sparse_attention_backward_schema() {
  using Op = BlockSparseBackward;
  static const OperatorSchema table =
      Schema<Op>("block_sparse_attention_backward",
                 "gradients of block_sparse_attention with respect to q, k and v")
          .with(add_gradient_of_out<Op>)
          .with(add_heads<Op>)
          .with(add_results_of<Op>("the result of block_sparse_attention"))
          .with(add_choice<Op>)
          .with(add_deterministic<Op>)
          .require("indices", has_room,
                   "fewer than 2^31 entries of a head, of all batches or sequences together",
                   "split the batch")
          .with(add_gradients<Op>)
          .source("Dao 2023, FlashAttention-2, over lists that are inverted on the device")
          .no_gradient("those of gradients are not implemented")
          .flops("2*batch*queries*heads*(mask ? keys : min(entries*k_block_size, keys))*(3*d + 2*d_v)")
          .counted(backward_operations)
          .examples(examples())
          .measured(block_sparse_measured())
          .maps(block_sparse_maps({"dlse", "deterministic=false"}))
          .run(on_moved_rows<Op, run>, formula);
  return table;
}

}  // namespace tegula::ops

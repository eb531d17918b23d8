// Groups of arguments that several operators share, in the order in which they stand in the signatures.
#pragma once
#include "arguments.hpp"
#include "call.hpp"
#include "options.hpp"

namespace tegula::python {

// topk_indices, counts, mask, cu_seqlens_q, cu_seqlens_k, q_block_size, k_block_size, layout, causal, scale,
// softcap, max_seqlen_q, max_seqlen_k
inline ops::BlockSparseOptions block_sparse_options(Call& call, Arguments& given) {
  const nb::handle indices = given.array(), counts = given.array(), mask = given.array(),
                   cu_seqlens_q = given.array(), cu_seqlens_k = given.array();
  ops::BlockSparseOptions options;
  options.q_block = given.small_integer("q_block_size"),
  options.k_block = given.small_integer("k_block_size");
  options.layout = layout_of(given.text("layout"));
  options.causal = given.flag("causal");
  options.scale = given.optional_number("scale");
  options.softcap = static_cast<float>(given.number("softcap"));
  options.max_seqlen_q = given.integer("max_seqlen_q"), options.max_seqlen_k = given.integer("max_seqlen_k");
  options.indices = call.optional_input("topk_indices", indices);
  options.counts = call.optional_input("counts", counts);
  options.mask = call.optional_input("mask", mask);
  options.cu_seqlens_q = call.optional_input("cu_seqlens_q", cu_seqlens_q);
  options.cu_seqlens_k = call.optional_input("cu_seqlens_k", cu_seqlens_k);
  return options;
}

// block_counts, cu_seqlens_q, cu_seqlens_k, block_size, layout, causal, diagonal, repeats, window, scale,
// max_seqlen_q, max_seqlen_k
inline ops::NsaSelectedOptions selected_options(Call& call, Arguments& given) {
  const nb::handle block_counts = given.array(), cu_seqlens_q = given.array(), cu_seqlens_k = given.array();
  ops::NsaSelectedOptions options;
  options.block_size = given.small_integer("block_size");
  options.layout = layout_of(given.text("layout"));
  options.causal = given.flag("causal"), options.diagonal = given.flag("diagonal");
  options.repeats = given.flag("repeats");
  options.window = given.integer("window");
  options.scale = given.optional_number("scale");
  options.max_seqlen_q = given.integer("max_seqlen_q"), options.max_seqlen_k = given.integer("max_seqlen_k");
  options.block_counts = call.optional_input("block_counts", block_counts);
  options.cu_seqlens_q = call.optional_input("cu_seqlens_q", cu_seqlens_q);
  options.cu_seqlens_k = call.optional_input("cu_seqlens_k", cu_seqlens_k);
  return options;
}

}  // namespace tegula::python

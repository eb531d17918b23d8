// Groups of options that several operators share, from Python's arguments.
#pragma once
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "call.hpp"
#include "options.hpp"

namespace tegula::python {

struct DenseArguments {
  std::string layout;
  std::optional<float> scale;
  bool causal;
  std::int64_t left, right;
  float softcap;
  nb::object sinks, cu_seqlens_q, cu_seqlens_k;
  std::string target;
};

inline ops::AttentionOptions dense_options(Call& call, const DenseArguments& given) {
  ops::AttentionOptions options;
  options.layout = layout_of(given.layout);
  options.scale = given.scale;
  options.causal = given.causal;
  options.left = given.left, options.right = given.right;
  options.softcap = given.softcap;
  options.sinks = call.optional_input("sinks", given.sinks);
  options.cu_seqlens_q = call.optional_input("cu_seqlens_q", given.cu_seqlens_q);
  options.cu_seqlens_k = call.optional_input("cu_seqlens_k", given.cu_seqlens_k);
  options.target = target_of(given.target);
  return options;
}

struct BlockSparseArguments {
  std::string layout;
  int q_block, k_block;
  nb::object indices, counts, mask;
  bool causal;
  std::optional<float> scale;
  float softcap;
  bool check_indices;
  std::string target;
};

inline ops::BlockSparseOptions block_sparse_options(Call& call, const BlockSparseArguments& given) {
  ops::BlockSparseOptions options;
  options.layout = layout_of(given.layout);
  options.q_block = given.q_block, options.k_block = given.k_block;
  options.indices = call.optional_input("topk_indices", given.indices);
  options.counts = call.optional_input("counts", given.counts);
  options.mask = call.optional_input("mask", given.mask);
  options.causal = given.causal;
  options.scale = given.scale;
  options.softcap = given.softcap;
  options.check_indices = given.check_indices;
  options.target = target_of(given.target);
  return options;
}

struct SelectedArguments {
  nb::object block_counts;
  int block_size;
  std::string layout;
  bool causal, diagonal, repeats;
  std::int64_t window;
  std::optional<float> scale;
  nb::object cu_seqlens_q, cu_seqlens_k;
  bool check_indices;
  std::string target;
};

inline ops::NsaSelectedOptions selected_options(Call& call, const SelectedArguments& given) {
  ops::NsaSelectedOptions options;
  options.layout = layout_of(given.layout);
  options.block_size = given.block_size;
  options.block_counts = call.optional_input("block_counts", given.block_counts);
  options.causal = given.causal, options.diagonal = given.diagonal, options.repeats = given.repeats;
  options.window = given.window;
  options.scale = given.scale;
  options.cu_seqlens_q = call.optional_input("cu_seqlens_q", given.cu_seqlens_q);
  options.cu_seqlens_k = call.optional_input("cu_seqlens_k", given.cu_seqlens_k);
  options.check_indices = given.check_indices;
  options.target = target_of(given.target);
  return options;
}

}  // namespace tegula::python

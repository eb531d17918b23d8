// What the tables of attention to listed rows and of its gradient share.
#pragma once
#include "ops/pieces/attention_table.hpp"
#include "tegula/ops/sparse_mla.hpp"

namespace tegula::ops {

struct SparseMla : SparseMlaOptions {
  TensorRef q = {}, kv = {}, indices = {};
};
struct SparseMlaBackward : SparseMlaOptions, SparseMlaBackwardOptions {
  TensorRef dout = {}, q = {}, kv = {}, indices = {}, out = {}, lse = {};
};

// Calls between and around the examples of both.
std::vector<CallMap> sparse_mla_maps();

inline constexpr const char* latent_query_dims = "[batch] queries (kv_heads*group) d";
inline constexpr const char* latent_out_dims = "[batch] queries (kv_heads*group) d_v";
inline constexpr const char* latent_lse_dims = "[batch] queries (kv_heads*group)";
inline constexpr const char* latent_key_dims = "[batch] keys kv_heads d";
inline constexpr const char* latent_more_dims = "[batch] more_keys kv_heads d";

template <class Op>
void add_latents(Schema<Op>& table) {
  table.in(&Op::q, "q", latent_query_dims, floats, "queries")
      .unit_stride()
      .remedy("give q a multiple of the heads of kv, and all of them a batch or none")
      .in(&Op::kv, "kv", latent_key_dims, same_as("q"),
          "rows of the cache: each is a key, and its first d_v features are the value")
      .unit_stride()
      .remedy("give it the batch and the features of q")
      .in(&Op::indices, "indices", "[batch] queries kv_heads entries", index,
          "rows that a query sees; numbers of no row, such as -1, are padding; a row counts as often "
          "as it is listed")
      .converts()
      .range("-2", "keys+2")
      .remedy("give every query and head of kv a list")
      .in(&Op::counts, "counts", "[batch] queries kv_heads", index,
          "number of used entries of each list; all if omitted")
      .range("0", "entries+1")
      .remedy("give every list a count")
      .in(&Op::sinks, "sinks", "(kv_heads*group)", floats,
          "one logit per head that is added to the sum of the softmax but has no value")
      .remedy("give every head of q one")
      .in(&Op::more_kv, "more_kv", latent_more_dims, same_as("q"),
          "rows of a second source, in the same softmax")
      .unit_stride()
      .remedy("give it the batch, the heads and the features of kv")
      .in(&Op::more_indices, "more_indices", "[batch] queries kv_heads more_entries", index,
          "the rows of more_kv that a query sees")
      .converts()
      .range("-2", "more_keys+2")
      .remedy("give every query and head of kv a list")
      .option(&Op::d_v, "d_v", "leading features of a row that are its value",
              between(1, 512, "a number of features from 1 to 512"))
      .option(&Op::causal, "causal", "entries for rows after the query's position are padding")
      .template with(add_scale<Op>)
      .require("more_kv", "more_kv == more_indices", "more_kv and more_indices together", "give both")
      .require("causal", "more_kv ? 1-causal : 1", "no more_kv with it: a second source has no positions",
               "set entries after the query to -1")
      .require("kv", "group >= 1", "no heads, as q", "give q a head for each of kv, or more")
      .require("q", "1 <= d & d <= 576", "1 to 576 features", "split the features")
      .require("d_v", "d_v <= d", "at most the {d} features of a row", "give the features of its value");
}

}  // namespace tegula::ops

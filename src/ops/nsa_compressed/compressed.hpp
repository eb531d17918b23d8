// The programs over queries and compressed entries: what they are fixed by, and their tensors.
#pragma once
#include <numeric>

#include "ops/nsa_compressed/windows.hpp"
#include "ops/pieces/attention_table.hpp"
#include "ops/pieces/features.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/schema/functions.hpp"
#include "tegula/ops/nsa_compressed_attention.hpp"

namespace tegula::ops {

struct Compressed : NsaCompressedOptions {
  TensorRef q = {}, k = {}, v = {};
};
struct CompressedBackward : NsaCompressedOptions, NsaCompressedBackwardOptions {
  TensorRef dout = {}, q = {}, k = {}, v = {}, out = {}, lse = {};
};

// Query heads of a group share tiles: as many as `pack`.
struct CompressedKernel {
  DType type = f32, compute = f32;
  int dim = 64, dim_v = 64;
  TileFeatures padded = {};
  int pack = 1, queries = 64, keys = 64;  // of a tile
  bool packed = false;

  int rows() const { return queries * pack; }
  int features() const { return padded.of(dim); }
  int features_v() const { return padded.of_v(dim_v); }
  auto fields() const {
    return std::tuple(type, labelled("c", compute), joined("d", dim, dim_v), padded,
                      joined("t", queries, keys), labelled("h", pack), labelled("packed", packed));
  }
};

// Tiles have as many rows as a warp group multiplies, of as many heads as divide them.
template <class Op>
CompressedKernel compressed_kernel(const Bound<Op>& c, int dim_v) {
  CompressedKernel kernel{.type = c.type("q"),
                          .compute = multiplied_type(c.type("q"), c.on_gpu()),
                          .dim = c.small_dim("d"),
                          .dim_v = dim_v,
                          .packed = c.has("cu_seqlens")};
  kernel.padded = tile_features(kernel.dim, kernel.dim_v, kernel.compute);
  const int widest = std::max(kernel.features(), kernel.features_v());
  const int rows = fitting_extent(warp_group_rows, widest, kernel.compute.bits() / 8);
  const int most = std::min(rows, 16);
  kernel.pack = std::gcd(static_cast<int>(std::clamp<std::int64_t>(c.dim("group"), 1, 1 << 20)), most);
  kernel.queries = rows / kernel.pack, kernel.keys = rows;
  // A warp group multiplies all its rows at the same time; a CPU as many as there are.
  while (!c.on_gpu() && kernel.queries / 2 >= std::max<std::int64_t>(c.dim("longest"), 1))
    kernel.queries /= 2;
  return kernel;
}

// Which entries the queries of a sequence see.
struct EntrySight {
  Windows windows;
  lang::Expr shift;  // of a query's position
  lang::Expr queries, entries;

  // One past the last entry that a query sees.
  lang::Expr limit(const lang::Expr& query) const {
    return lang::min(windows.among(query + shift + 1), entries);
  }
  lang::Expr sees(const lang::Expr& query, const lang::Expr& entry) const {
    return entry * windows.stride + windows.length <= query + shift + 1 && entry < entries;
  }
  // The first query that sees an entry.
  lang::Expr first_query(const lang::Expr& entry) const {
    return lang::clamp(entry * windows.stride + windows.length - 1 - shift, 0, queries);
  }
};

// The signature that they share. Heads of q are those that tiles share, `packs` of them.
struct CompressedProgram {
  const CompressedKernel& c;
  lang::Dim batch{"batch"}, queries{"queries"}, entries{"entries"}, packs{"packs"}, kv_heads{"kv_heads"};
  lang::Tensor q = lang::input("q", of_queries(c.dim), c.type),
               k = lang::input("k", of_entries(c.dim), c.type);
  lang::Expr scale = lang::scalar("scale", f32), length = lang::scalar("length", i32),
             stride = lang::scalar("stride", i32), tokens = lang::scalar("tokens", i32),
             longest = lang::scalar("longest", i32);
  std::optional<lang::Tensor> fences;

  explicit CompressedProgram(const CompressedKernel& instance) : c(instance) {
    if (c.packed) fences.emplace(lang::input("cu_seqlens", {lang::Dim("fences")}, i32));
  }

  lang::Extents of_queries(int features) const { return {batch, queries, packs, c.pack, features}; }
  lang::Extents of_entries(int features) const { return {batch, entries, kv_heads, features}; }
  lang::Extents vector() const { return {batch, packs, c.pack, queries}; }

  lang::Expr sequences() const { return c.packed ? fences->extent(0) - 1 : lang::Expr(batch); }
  CompressedSequence sequence(const lang::Expr& b) const {
    return c.packed ? CompressedSequence::packed(*fences, b, stride)
                    : CompressedSequence::of_batch(b, queries, entries);
  }
  EntrySight sight(const CompressedSequence& s) const {
    return {{length, stride},
            c.packed ? lang::Expr(lang::Operand(0)) : tokens - queries,
            s.length(),
            s.entries.end - s.entries.begin};
  }
  // What a block of queries from `first` on sees; `s` ends it.
  EntrySight sight_from(const lang::Expr& first, const CompressedSequence& s) const {
    EntrySight result = sight(s);
    if (c.packed) {
      s.check(longest);
      exit_if(first >= result.queries);
    }
    return result;
  }
  lang::Expr packs_of_group() const { return packs / kv_heads; }

  // [batch, tokens, packs, pack, …] becomes [tokens, (pack,) …]; [batch, packs, pack, tokens] [(pack,)
  // tokens].
  lang::Tensor queries_of(const lang::Tensor& t, const CompressedSequence& s, const lang::Expr& head) const {
    return t.slice(s.batch, s.tokens, head, c.pack > 1 ? lang::Subscript(lang::all) : lang::Subscript(0));
  }
  lang::Tensor vector_of(const lang::Tensor& t, const CompressedSequence& s, const lang::Expr& head) const {
    return t.slice(s.batch, head, c.pack > 1 ? lang::Subscript(lang::all) : lang::Subscript(0), s.tokens);
  }
  lang::Tensor entries_of(const lang::Tensor& t, const CompressedSequence& s, const lang::Expr& head) const {
    return t.slice(s.batch, s.entries, head);
  }
};

inline const std::string vector_dims =
    "cu_seqlens ? (kv_heads*group) queries : batch (kv_heads*group) queries";

// Where queries stand, and how scores are scaled.
template <class Op>
void add_positions(Schema<Op>& table) {
  table
      .option(&Op::key_tokens, "key_tokens", "tokens from which the entries are made; 0: as many as queries",
              between(0, 1 << 30, "a number of tokens, or 0 for as many as queries", "leave it out"))
      .with(add_scale<Op>)
      .let("tokens", "key_tokens > 0 ? key_tokens : queries")
      .require("key_tokens", "cu_seqlens ? key_tokens == 0 : 1", "0 with cu_seqlens",
               "leave it out: a packed sequence has as many keys as queries")
      .require("k", "cu_seqlens ? entries == queries/stride : 1",
               "tokens / stride entries with cu_seqlens, as nsa_compress returns them",
               "make them of the packed tokens")
      .require("k", "group >= 1", "no heads, as q", "give q a head for each of k, or more")
      .require("q", "1 <= d & d <= 512", "1 to 512 features", "split the heads");
}

// q and compressed k.
template <class Op>
void add_compressed_keys(Schema<Op>& table) {
  table.in(&Op::q, "q", compressed_dims("queries", query_heads, "d"), floats, "queries")
      .unit_stride()
      .remedy("give q a multiple of the heads of k, and check the layout")
      .in(&Op::k, "k", compressed_dims("entries", "kv_heads", "d"), same_as("q"), "compressed keys")
      .unit_stride()
      .remedy("give it the batch and the features of q, and check the layout");
}

// Tensors of a call in the form of the programs.
template <class Op>
TensorRef rows_of_queries(const Bound<Op>& c, const char* name, int pack) {
  return split_heads(batched(c[name], c->layout), 2, pack);
}
template <class Op>
TensorRef vector_of_queries(const Bound<Op>& c, const char* name, int pack) {
  return split_heads(batched_vector(c[name]), 1, pack);
}
template <class Op>
TensorRef rows_of_entries(const Bound<Op>& c, const char* name) {
  return batched(c[name], c->layout);
}

}  // namespace tegula::ops

// The tensors and scalars of the program of attention to a cache, and what lengths make of them.
#pragma once
#include <optional>

#include "ops/decode/kernel.hpp"
#include "ops/decode/sequence_list.hpp"
#include "ops/lists/sorted_lists.hpp"
#include "ops/pieces/splits.hpp"

namespace tegula::ops {

struct CacheTensors {
  using Dim = lang::Dim;
  using Expr = lang::Expr;

  const CacheKernel& c;
  Dim batch{"batch"}, queries{"queries"}, heads{"kv_heads"}, group{"group"};
  std::optional<Dim> pages, page_size;  // those of the cache: of rows, sequences and keys
  std::optional<lang::Tensor> q, k, v, out, lse, factors, last, table, lengths, k_scale, v_scale, tree, sinks;
  std::optional<Expr> scale, left, cap, splits;
  std::optional<SplitResults> split_results;
  std::optional<SequenceList> list;
  std::optional<lang::Tensor> choice, counts;
  std::optional<SortedLists> lists;

  // Declares them.
  explicit CacheTensors(const CacheKernel& instance);

  Expr room() const;  // for tokens of a sequence
  Expr length_of(const Expr& b) const { return lengths ? Expr((*lengths)(b)) : room(); }
  Expr member_tiles() const { return c.parted ? lang::ceildiv(group, c.pack) : Expr(1); }

 private:
  void declare_cache();
  void declare_record(const lang::Extents& rows);
  void declare_choice();
  void declare_list();
};

}  // namespace tegula::ops

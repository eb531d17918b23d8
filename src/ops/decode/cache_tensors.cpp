#include "ops/decode/cache_tensors.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

CacheTensors::CacheTensors(const CacheKernel& instance) : c(instance) {
  q.emplace(input("q", {batch, queries, heads, group, c.dim}, c.type));
  declare_cache();
  if (c.tree) tree.emplace(input("tree_mask", {batch, queries, queries}, boolean));
  if (c.block > 0) declare_choice();
  if (c.sinks) sinks.emplace(input("sinks", {heads, group}, *c.sinks));
  out.emplace(output("out", {batch, queries, heads, group, c.dim_v}, c.type));
  lse.emplace(output("lse", {batch, heads, group, queries}, f32));
  scale.emplace(scalar("scale", f32));
  if (c.left) left.emplace(scalar("left", i32));
  if (c.softcap != ScoreCap::none) cap.emplace(scalar("cap", f32));
  if (c.split || c.shares) splits.emplace(scalar("splits", i32));
  if (c.longest_first || c.shares) declare_list();
  if (c.shares)
    split_results.emplace(queries, heads * group, list->count(), c.features_v());
  else if (c.split)
    split_results.emplace(batch * queries, heads * group, *splits, c.features_v());
}

void CacheTensors::declare_cache() {
  if (c.form.paged) {
    pages.emplace("pages");
    if (c.form.page == 0) page_size.emplace("page_size");
  } else {
    page_size.emplace("keys");
  }
  const Extents rows{pages ? Operand(*pages) : Operand(batch),
                     page_size ? Operand(*page_size) : Operand(c.form.page), heads};
  const bool whole = c.record == CacheRecord::none;
  const auto declared = [&](const char* name, int features, int off) {
    const Tensor cache = input(name, joined(rows, {features + off}), c.cache);
    return off == 0 ? cache : cache.slice(all, all, all, range(0, features));
  };
  k.emplace(declared("k_cache", whole ? c.dim : c.in_8_bits(), c.off));
  if (!c.latent) v.emplace(declared("v_cache", c.dim_v, c.off_v));
  if (!whole) declare_record(rows);
  if (c.form.paged) {
    Dim width("table_width");
    table.emplace(input("block_table", {batch, width}, i32));
  }
  if (c.form.lengths) lengths.emplace(input("cache_seqlens", {batch}, i32));
  if (c.k_scale != CacheScale::none) k_scale.emplace(input("k_scale", rows, f32));
  if (c.v_scale != CacheScale::none) v_scale.emplace(input("v_scale", rows, f32));
}

void CacheTensors::declare_record(const Extents& rows) {
  const bool powers = c.record == CacheRecord::tiles_of_64;
  factors.emplace(input("factors", joined(rows, {c.in_8_bits() / (powers ? 64 : 128)}), powers ? u8 : f32));
  last.emplace(input("last_features", joined(rows, {c.dim - c.in_8_bits()}), c.type));
}

void CacheTensors::declare_choice() {
  Dim width(c.mask ? "mask_blocks" : "entries");
  choice.emplace(input(c.mask ? "mask" : "indices", {batch, heads, width}, c.mask ? boolean : i32));
  if (c.counts) counts.emplace(input("counts", {batch, heads}, i32));
  lists.emplace(batch, heads, 1, width, c.listed, [this](const Expr& b, const Expr& h, const Expr&) {
    Expr blocks = ceildiv(clamp(length_of(b), 0, room()), c.block), width = choice->extent(2);
    Expr entries = counts ? clamp((*counts)(b, h), 0, width) : width;
    return SortedLists::Row{{choice->slice(b, h), entries, c.mask}, c.mask ? min(blocks, width) : blocks};
  });
}

void CacheTensors::declare_list() {
  // About as many steps as a tile of queries sees.
  const auto steps = [this](const Expr& length) -> Expr {
    Expr seen = left ? min(length, *left + queries + c.keys) : length;
    return ceildiv(clamp(seen, 0, room()), c.keys);
  };
  list.emplace(SequenceList::Sequences{*lengths, steps},
               c.shares ? std::optional<Expr>(*splits) : std::nullopt);
}

Expr CacheTensors::room() const {
  if (!c.form.paged) return k->extent(1);
  return table->extent(1) * (page_size ? Expr(*page_size) : Expr(c.form.page));
}

}  // namespace tegula::ops

// The programs of the gradients of attention: what their grids share.
#pragma once
#include <optional>

#include "ops/attention/backward_kernel.hpp"
#include "ops/lists/packed_tiles.hpp"
#include "ops/pieces/gradient.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

// See attention_backward_kernel.
namespace backward {

using namespace lang;
using lang::Tensor;

inline constexpr int threads_of_warp_group = 128;

struct BackwardProgram {
  const AttentionBackwardKernel& c;
  std::optional<Dim> batch, queries, keys, group;  // group: of query heads, where they do not share tiles
  Dim heads{"kv_heads"};
  std::optional<Tensor> dout, q, k, v, out, lse, dq, dk, dv, delta, base, sum, dlse, sinks, dsinks, q_begin,
      k_begin, dk_splits, dv_splits;
  std::optional<Expr> scale, left, right, cap, longest_q, longest_k;
  std::optional<LargeScores> large;
  std::optional<PackedTiles> q_tiles, k_tiles;
  std::optional<Expr> share;     // that the block goes through
  std::optional<Expr> row_part;  // of the tiles of queries, likewise

  explicit BackwardProgram(const AttentionBackwardKernel& instance) : c(instance) {
    if (c.pack == 1) group.emplace("group");
    if (!c.varlen) batch.emplace("batch");
    queries.emplace("queries");
    keys.emplace("keys");
    if (c.varlen)
      declare({*queries}, {*keys}, {});
    else
      declare({*batch, *queries}, {*batch, *keys}, {*batch});
    scale.emplace(scalar("scale", f32));
    if (c.left) left.emplace(scalar("left", i32));
    if (c.right) right.emplace(scalar("right", i32));
    if (c.softcap != ScoreCap::none) cap.emplace(scalar("cap", f32));
    if (c.sinks) {
      sinks.emplace(input("sinks", {heads, members()}, *c.sinks));
      dsinks.emplace(output("dsinks", {heads, members()}, f32));
    }
    const Extents vector = joined(c.varlen ? Extents{} : Extents{*batch}, {heads, members(), *queries});
    if (c.dlse) dlse.emplace(input("dlse", vector, f32));
    // Rows that begin at multiples of 16 bytes, for the copy engine, whatever the length.
    Extents padded = vector;
    padded.back() = ceildiv(*queries, delta_rows) * delta_rows;
    delta.emplace(workspace("delta", padded, f32));
    base.emplace(workspace("base", padded, f32));
    large.emplace();
    const Extents shares = c.shares ? Extents{c.shares} : Extents{};
    if (c.one_pass && !c.alone)
      sum.emplace(workspace("sum", joined(joined(shares, vector), {c.features()}), f32,
                            {.zero = !starts_uncleared()}));
    if (c.splits > 1) {
      dk_splits.emplace(workspace("dk_parts", splits_of(c.features()), f32));
      dv_splits.emplace(workspace("dv_parts", splits_of(c.features_v()), f32));
    }
    if (c.varlen) declare_sequences();
  }

  Extents splits_of(int features) const {
    return joined(joined({c.splits}, c.varlen ? Extents{*keys} : Extents{*batch, *keys}), {heads, features});
  }

  // The first block of keys that a tile of queries sees tells its sums that they begin.
  bool starts_uncleared() const { return c.ordered && !c.varlen; }
  Operand members() const { return c.pack > 1 ? Operand(c.pack) : Operand(*group); }
  ScoreGradient gradient() const { return {*scale, cap, *large, c.softcap, c.compute}; }

  void declare(const Extents& q_tokens, const Extents& k_tokens, const Extents& batches) {
    const Extents of_q = joined(q_tokens, {heads, members()}), of_k = joined(k_tokens, {heads});
    dout.emplace(input("dout", joined(of_q, {c.dim_v}), c.type));
    q.emplace(input("q", joined(of_q, {c.dim}), c.type));
    k.emplace(input("k", joined(of_k, {c.dim}), c.type));
    v.emplace(input("v", joined(of_k, {c.dim_v}), c.type));
    out.emplace(input("out", joined(of_q, {c.dim_v}), c.type));
    lse.emplace(input("lse", joined(batches, {heads, members(), *queries}), f32));
    dq.emplace(output("dq", joined(of_q, {c.dim}), c.type));
    dk.emplace(output("dk", joined(of_k, {c.dim}), c.type));
    dv.emplace(output("dv", joined(of_k, {c.dim_v}), c.type));
  }

  void declare_sequences() {
    Dim fences("fences");
    q_begin.emplace(input("q_begin", {fences}, i32));
    k_begin.emplace(input("k_begin", {fences}, i32));
    longest_q.emplace(scalar("longest_q", i32));
    longest_k.emplace(scalar("longest_k", i32));
    if (!c.listed) return;
    if (!c.one_pass) q_tiles.emplace("q_tile_owners", *q_begin, c.queries);
    k_tiles.emplace("k_tile_owners", *k_begin, c.keys);
  }

  SequenceRows rows_of(const Expr& b) const {
    return c.varlen ? SequenceRows(b, *q_begin, *k_begin) : SequenceRows(b, *queries, *keys);
  }
  Expr sequences() const { return c.varlen ? q_begin->extent(0) - 1 : Expr(*batch); }
  // The queries that see the tile of keys from `first` on. Seen from a key, the window is the other way
  // round.
  ScoreRange seen_from(const Expr& first, const Expr& queries_here, const Expr& keys_here) const {
    return {first + queries_here - keys_here, c.keys, keys_here - first, queries_here, right, left};
  }
  // Those of its tiles of queries that a block goes through.
  Range own_steps(const Range& of_keys) const {
    if (!row_part) return of_keys;
    const Expr begin = of_keys.begin, end = of_keys.end, each = ceildiv(end - begin, c.row_splits),
               first = min(begin + *row_part * each, end);
    return range(first, min(first + each, end));
  }
  // The first tile of keys that some query of the tile from `row` on sees, if any does.
  Expr first_seen(const Expr& row, const Expr& queries_here, const Expr& keys_here) const {
    if (!c.left) return Operand(0);
    return max(floordiv(row + keys_here - queries_here - *left, c.keys), 0);
  }
  // What the grid over queries is divided by: heads, or groups of heads that share tiles.
  Expr head_blocks() const { return c.pack > 1 ? Expr(heads) : heads * *group; }

  void run() {
    delta_grid();
    const Tensor results[] = {*dq, *dk, *dv};
    if (c.padded.copied) copy_rows();
    if (!c.one_pass) query_grid();
    if (c.step) {
      key_grid(KeySums::values);
      key_grid(KeySums::keys);
    } else {
      key_grid(KeySums::both);
    }
    if (c.splits > 1) sum_splits(*dk_splits, *dk, c.features()), sum_splits(*dv_splits, *dv, c.features_v());
    if (sum) sum_grid();
    if (c.padded.copied) {
      copy_features(*dq, results[0], c.features(), !c.varlen);
      copy_features(*dk, results[1], c.features(), !c.varlen);
      copy_features(*dv, results[2], c.features_v(), !c.varlen);
    }
    if (c.sinks) sink_grid();
  }
  void delta_grid();
  void copy_rows();
  // Two warp groups share the rows of a wide sum, or its columns.
  GridOptions grid_options() const {
    GridOptions options;
    if (c.step) options.threads = 2 * threads_of_warp_group;
    return options;
  }
  void query_grid();
  void key_grid(KeySums sums);
  void sum_splits(const Tensor& sums, const Tensor& to, int features);
  void sum_grid();
  void sum_shares();
  void sink_grid();
  void query_block(const Expr& x, const Index& h, const Expr& b);
  void key_block(KeySums sums, const Expr& x, const Expr& h, const Expr& b);
  // Of the heads that a block of keys meets in turn: this one, and the first. One alone is neither.
  struct Turn {
    Expr member, first;
  };
  void add_member(KeyGradient& tile, KeySums sums, const Expr& x, const HeadViews& views,
                  const std::optional<Turn>& turn);
  void add_members_of_rows(KeyGradient& tile, KeySums sums, const Expr& x, const SequenceRows& rows,
                           const Expr& kv_head, const Range& members);
  void add_rows(KeyGradient& tile, KeySums sums, const HeadViews& views, const ScoreRange& visible,
                const Expr& row, const KeyGradient::Receiver& receive);
  KeyGradient::Receiver adds_to(const Tensor& to, const Expr& row) const;
  KeyGradient::Receiver stores_to(const Tensor& to, const Expr& row) const;
  KeyGradient::Receiver receiver(const Expr& x, const Expr& row, const HeadViews& views) const;
  // One of base and delta, whose rows are padded.
  Tensor padded(const Tensor& t, const HeadViews& views) const {
    return c.varlen ? views.vector(t) : t.slice(views.rows.b, views.kv_head, views.member, all);
  }
};

}  // namespace backward
}  // namespace tegula::ops

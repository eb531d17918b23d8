#include "ops/attention/backward_kernel.hpp"

#include "ops/lists/packed_tiles.hpp"
#include "ops/pieces/gradient.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/split_sums.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int sink_rows = 1024;  // of a step of the sum over queries
constexpr int threads_of_warp_group = 128;

struct BackwardProgram {
  const AttentionBackwardKernel& c;
  std::optional<Dim> batch, queries, keys, group;  // group: of query heads, where they do not share tiles
  Dim heads{"kv_heads"};
  std::optional<Tensor> dout, q, k, v, out, lse, dq, dk, dv, delta, base, sum, dlse, sinks, dsinks, q_begin,
      k_begin, dk_splits, dv_splits;
  std::optional<Expr> scale, left, right, cap, longest_q, longest_k;
  std::optional<LargeScores> large;
  std::optional<PackedTiles> q_tiles, k_tiles;

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
    if (c.one_pass)
      sum.emplace(workspace("sum", joined(vector, {c.features()}), f32, {.zero = !starts_uncleared()}));
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
    if (c.one_pass) sum_grid();
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
  void sink_grid();
  void query_block(const Expr& x, const Index& h, const Expr& b);
  void key_block(KeySums sums, const Expr& x, const Index& h, const Expr& b);
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
  KeyGradient::Receiver receiver(const Expr& x, const Expr& row, const HeadViews& views) const;
  // One of base and delta, whose rows are padded.
  Tensor padded(const Tensor& t, const HeadViews& views) const {
    return c.varlen ? views.vector(t) : t.slice(views.rows.b, views.kv_head, views.member, all);
  }
};

void BackwardProgram::delta_grid() {
  Expr batches = c.varlen ? Expr(Operand(1)) : Expr(*batch);
  grid(ceildiv(*queries, delta_rows), heads * members(), batches, [&](Index x, Index h, Index b) {
    Expr kv_head = h / members(), member = h % members();
    auto tokens = [&](const Tensor& t) {
      return c.varlen ? t.slice(all, kv_head, member) : t.slice(b, all, kv_head, member);
    };
    auto vector = [&](const Tensor& t) {
      return c.varlen ? t.slice(kv_head, member) : t.slice(b, kv_head, member);
    };
    HeadRows rows{tokens(*dout), tokens(*out), vector(*lse), vector(*delta),
                  vector(*base), {},           c.dim_v,      *large};
    if (dlse) rows.dlse.emplace(vector(*dlse));
    write_delta(rows, x * delta_rows);
  });
}

// The later grids work on rows of more features.
void BackwardProgram::copy_rows() {
  const auto copied = [&](std::optional<Tensor>& tensor, const char* name, int features) {
    const Tensor rows = with_features(name, *tensor, features);
    copy_features(*tensor, rows, features, !c.varlen);
    tensor.emplace(rows);
  };
  copied(q, "q_rows", c.features());
  copied(k, "k_rows", c.features());
  copied(v, "v_rows", c.features_v());
  copied(dout, "dout_rows", c.features_v());
  dq.emplace(with_features("dq_rows", *dq, c.features()));
  dk.emplace(with_features("dk_rows", *dk, c.features()));
  dv.emplace(with_features("dv_rows", *dv, c.features_v()));
}

void BackwardProgram::sum_grid() {
  Expr batches = c.varlen ? Expr(Operand(1)) : Expr(*batch);
  grid(ceildiv(*queries, delta_rows), heads * members(), batches, [&](Index x, Index h, Index b) {
    Expr kv_head = h / members(), member = h % members();
    Tensor from = c.varlen ? sum->slice(kv_head, member) : sum->slice(b, kv_head, member);
    Tensor to = c.varlen ? dq->slice(all, kv_head, member) : dq->slice(b, all, kv_head, member);
    Expr row = x * delta_rows;
    std::optional<Expr> exists;
    if (starts_uncleared()) {
      // The first block of keys that a tile of queries could see meets it, or none does.
      Expr first = first_seen(row / c.queries * c.queries, *queries, *keys) * c.keys;
      Range met = seen_from(first, *queries, *keys).tiles(c.queries);
      exists.emplace(*keys > first && row / c.queries >= met.begin && row / c.queries < met.end);
    }
    finish_sum(from, to, row, c.features(), gradient().factor(), exists);
  });
}

void BackwardProgram::query_grid() {
  GridOptions options = grid_options();
  // Under a causal mask later queries see more keys.
  if (c.right && !c.left) options.order = Order::heavy_first([](Index x, Index, Index) -> Expr { return x; });
  if (q_tiles)
    return grid(q_tiles->count(), head_blocks(), 1, options, [&](Index x, Index h, Index) {
      const PackedTiles::Place place = q_tiles->place(x);
      query_block(place.tile, h, place.sequence);
    });
  Expr tiles = ceildiv(c.varlen ? *longest_q : Expr(*queries), c.queries);
  grid(tiles, head_blocks(), sequences(), options, [&](Index x, Index h, Index b) { query_block(x, h, b); });
}

void BackwardProgram::query_block(const Expr& x, const Index& h, const Expr& b) {
  const GradientTiles tiles = c.query_tiles();
  Expr kv_head = c.pack > 1 ? Expr(h) : h / *group;
  HeadViews views{rows_of(b), kv_head, c.pack > 1 ? Subscript(all) : Subscript(h % *group)};
  Tensor q_of = views.of_queries(*q), k_of = views.of_keys(*k), v_of = views.of_keys(*v);
  Expr first = x * c.queries, count = q_of.extent(0), keys_seen = k_of.extent(0);
  if (c.varlen) {
    assert_queries(count, *longest_q);
    exit_if(first >= count);
  }
  QueryGradient tile(tiles, gradient(), q_of, first);
  QueryGradient::Branch branch(tiles, views.of_queries(*dout), padded(*base, views), padded(*delta, views),
                               first);
  ScoreRange visible(first + keys_seen - count, c.queries, count - first, keys_seen, left, right);
  pipelined(visible.tiles(tiles.keys), {.stages = 2}, [&](Index j) {
    Shared k_tile("k_tile", {tiles.keys, tiles.dim}, c.compute),
        v_tile("v_tile", {tiles.keys, tiles.dim_v}, c.compute);
    copy(k_of.at(j * tiles.keys), k_tile);
    copy(v_of.at(j * tiles.keys), v_tile);
    tile.add(branch, k_tile, v_tile,
             {visible.is_partial(j * tiles.keys, tiles.keys),
              [&](const Expr& r, const Expr& t, const Expr& weight) {
                return select(visible.sees(r / c.pack, j * tiles.keys + t), weight, 0);
              }});
  });
  tile.store(views.of_queries(*dq), first);
}

// Blocks of different heads do not wait for each other, but those of a head that run at the same time share
// its queries and the sums of dq in the L2 cache: with 64 heads at once each block would bring them again.
void BackwardProgram::key_grid(KeySums sums) {
  constexpr int most_heads_at_once = 16;
  GridOptions options = grid_options();
  if (c.right && !c.left)
    options.order = Order::heavy_first([](Index x, Index, Index) -> Expr { return -x; });
  else if (c.ordered)
    options.order = Order::grouped(most_heads_at_once);
  Expr tiles = ceildiv(c.varlen ? *longest_k : Expr(*keys), c.keys);
  Expr columns = c.splits > 1 ? heads * c.splits : Expr(heads);
  if (k_tiles)
    return grid(k_tiles->count(), columns, 1, options, [&](Index x, Index h, Index) {
      const PackedTiles::Place place = k_tiles->place(x);
      key_block(sums, place.tile, h, place.sequence);
    });
  grid(tiles, columns, sequences(), options, [&](Index x, Index h, Index b) { key_block(sums, x, h, b); });
}

void BackwardProgram::key_block(KeySums sums, const Expr& x, const Index& h, const Expr& b) {
  Expr kv_head = c.splits > 1 ? h / c.splits : Expr(h);
  HeadViews views{rows_of(b), kv_head, all};
  Tensor k_of = views.of_keys(*k);
  Expr first = x * c.keys;
  if (c.varlen) {
    assert_keys(k_of.extent(0), *longest_k);
    exit_if(first >= k_of.extent(0));
  }
  KeyGradient tile(c.key_tiles(), gradient(), sums);
  tile.load(k_of, views.of_keys(*v), first);
  auto add_members = [&](const Range& members) {
    if (c.rows_first) return add_members_of_rows(tile, sums, x, views.rows, kv_head, members);
    const Expr begin = members.begin, end = members.end;
    serial(range(begin, end), [&](Index member) {
      add_member(tile, sums, x, {views.rows, kv_head, member}, Turn{member, begin});
    });
    if (!c.late) return;
    tile.contribute_last([&](const Fragment& contribution) {
      when(begin < end, [&] { receiver(x, 0, {views.rows, kv_head, end - 1})(contribution); });
    });
  };
  if (c.pack > 1) {
    add_member(tile, sums, x, views, {});
  } else if (c.splits > 1) {
    Expr split = h % c.splits, each = ceildiv(*group, c.splits);
    add_members(range(split * each, min(split * each + each, *group)));
    tile.store(views.of_keys(dk_splits->slice(split)), views.of_keys(dv_splits->slice(split)), first);
    return;
  } else {
    add_members(range(0, *group));
  }
  tile.store(views.of_keys(*dk), views.of_keys(*dv), first);
}

// Adds to the sums of dq of the queries from `row` on.
KeyGradient::Receiver BackwardProgram::receiver(const Expr& x, const Expr& row,
                                                const HeadViews& views) const {
  if (!sum) return {};
  Expr order = c.left ? x - first_seen(row, views.of_queries(*q).extent(0), views.of_keys(*k).extent(0)) : x;
  return [this, row, order, views](const Fragment& contribution) {
    const Tensor to = views.vector(*sum);
    if (c.ordered)
      accumulate(to.at(row), contribution,
                 {.order = order, .consecutive = true, .overwrite = starts_uncleared()});
    else
      accumulate(to.at(row), contribution);
  };
}

// What one head of the group, or all that share tiles, add to the tile of keys x.
void BackwardProgram::add_member(KeyGradient& tile, KeySums sums, const Expr& x, const HeadViews& views,
                                 const std::optional<Turn>& turn) {
  const GradientTiles tiles = c.key_tiles();
  ScoreRange visible = seen_from(x * c.keys, views.of_queries(*q).extent(0), views.of_keys(*k).extent(0));
  // From the last queries down: under a causal mask all blocks of keys meet them at the same time, so that
  // none waits long for its turn.
  Range steps = visible.tiles(tiles.queries);
  Expr begin = steps.begin, end = steps.end;
  pipelined(range(begin, end), {.stages = 2}, [&](Index j) {
    Expr row = (begin + end - 1 - j) * tiles.queries;
    // The first step of a head has the last one of the head before behind it: without a mask, the first rows.
    const KeyGradient::Receiver of_step_before = [&](const Fragment& contribution) {
      Expr same = j > begin;
      when(same || turn->member > turn->first, [&] {
        const HeadViews before{views.rows, views.kv_head, turn->member - select(same, 0, 1)};
        receiver(x, select(same, begin + end - j, 0) * tiles.queries, before)(contribution);
      });
    };
    add_rows(tile, sums, views, visible, row, c.late ? of_step_before : receiver(x, row, views));
  });
}

// All heads of the group for a tile of queries, then for the one before it. Under a causal mask blocks of
// earlier keys have more steps. If each block went through all queries of a head before the next head, all
// that run at a time would wait for the longest of them at the begin of every head.
void BackwardProgram::add_members_of_rows(KeyGradient& tile, KeySums sums, const Expr& x,
                                          const SequenceRows& rows, const Expr& kv_head,
                                          const Range& members) {
  const GradientTiles tiles = c.key_tiles();
  const HeadViews of_group{rows, kv_head, all};
  ScoreRange visible =
      seen_from(x * c.keys, of_group.of_queries(*q).extent(0), of_group.of_keys(*k).extent(0));
  Range steps = visible.tiles(tiles.queries);
  const Expr begin = steps.begin, end = steps.end, first = members.begin, last = members.end;
  serial(range(begin, end), [&](Index j) {
    Expr row = (begin + end - 1 - j) * tiles.queries;
    pipelined(range(first, last), {.stages = 2}, [&](Index member) {
      const HeadViews views{rows, kv_head, member};
      add_rows(tile, sums, views, visible, row, receiver(x, row, views));
    });
  });
}

// What the queries from `row` on of one head add.
void BackwardProgram::add_rows(KeyGradient& tile, KeySums sums, const HeadViews& views,
                               const ScoreRange& visible, const Expr& row,
                               const KeyGradient::Receiver& receive) {
  const GradientTiles tiles = c.key_tiles();
  Shared q_tile("q_tile", {tiles.rows(), tiles.dim}, c.compute),
      dout_tile("dout_tile", {tiles.rows(), tiles.dim_v}, c.compute);
  Shared base_of("base_of", {tiles.rows()}, f32), delta_of("delta_of", {tiles.rows()}, f32);
  load_queries(views.of_queries(*q), row, q_tile, c.pack);
  load_queries(views.of_queries(*dout), row, dout_tile, c.pack);
  load_vector(padded(*base, views), row, base_of, c.pack);
  if (sums != KeySums::values) load_vector(padded(*delta, views), row, delta_of, c.pack);
  tile.add(q_tile, dout_tile, base_of, delta_of,
           {visible.is_partial(row, tiles.queries),
            [&](const Expr& r, const Expr& t, const Expr& weight) {
              return select(visible.sees(r, row + t / c.pack), weight, 0);
            }},
           receive);
}

// In the order of the splits.
void BackwardProgram::sum_splits(const Tensor& sums, const Tensor& to, int features) {
  Expr batches = c.varlen ? Expr(Operand(1)) : Expr(*batch);
  grid(ceildiv(*keys, delta_rows), heads, batches, [&](Index x, Index h, Index b) {
    auto tokens = [&](const Tensor& t) { return c.varlen ? t.slice(all, h) : t.slice(b, all, h); };
    Fragment sum("sum", {delta_rows, features}, f32, 0);
    add_splits(sum, c.splits, [&](int split) { return tokens(sums.slice(split)).at(x * delta_rows); });
    copy(sum, tokens(to).at(x * delta_rows));
  });
}

// A sink's share of a row's sum is exp(sink − lse), and its gradient −share · delta.
void BackwardProgram::sink_grid() {
  grid(heads, members(), [&](Index kv_head, Index member) {
    Expr sink = (*sinks)(kv_head, member);
    Fragment sums("sums", {sink_rows}, f32, 0);
    serial(c.varlen ? Expr(Operand(1)) : Expr(*batch), [&](Index b) {
      auto vector = [&](const Tensor& t) {
        return c.varlen ? t.slice(kv_head, member) : t.slice(b, kv_head, member);
      };
      Tensor lse_of = vector(*lse), delta_of = vector(*delta);
      serial(ceildiv(*queries, sink_rows), [&](Index n) {
        Fragment row_lse = load(lse_of.at(n * sink_rows), {sink_rows}),
                 row_delta = load(delta_of.at(n * sink_rows), {sink_rows});
        parallel(sums, [&](Index i) {
          Expr share = select(sink == inf, 1, exp2((sink - row_lse(i)) * log2e));
          Expr counts = n * sink_rows + i < *queries && sink != -inf;
          sums(i) -= select(counts, share * row_delta(i), 0);
        });
      });
    });
    (*dsinks)(kv_head, member) = reduce_sum(sums).scalar();
  });
}

}  // namespace

Kernel attention_backward_kernel(const AttentionBackwardKernel& instance) {
  return kernel(instance_name("attention_backward", instance), [&] { BackwardProgram(instance).run(); });
}

}  // namespace tegula::ops

#include "ops/attention/backward_program.hpp"

namespace tegula::ops {
namespace backward {

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
// With the heads of one sequence only, where these are few, all blocks that run would wait for each other.
void BackwardProgram::key_grid(KeySums sums) {
  constexpr int most_heads_at_once = 16;
  GridOptions options = grid_options();
  const bool by_heads = c.ordered && !(c.right && !c.left);
  if (by_heads)
    options.order = Order::grouped(most_heads_at_once);
  else if (c.right && !c.left)
    options.order = Order::heavy_first([](Index x, Index, Index) -> Expr { return -x; });
  Expr tiles = c.alone ? Expr(Operand(1)) : ceildiv(c.varlen ? *longest_k : Expr(*keys), c.keys);
  if (c.shares)
    return grid(c.shares, heads, sequences(), options, [&](Index part, Index h, Index b) {
      share.emplace(part);
      serial(ceildiv(tiles - part, c.shares), [&](Index n) { key_block(sums, part + n * c.shares, h, b); });
    });
  Expr columns = c.splits > 1 ? heads * c.splits : Expr(heads);
  if (k_tiles)
    return grid(k_tiles->count(), columns, 1, options, [&](Index x, Index h, Index) {
      const PackedTiles::Place place = k_tiles->place(x);
      key_block(sums, place.tile, h, place.sequence);
    });
  if (by_heads)
    return grid(tiles, columns * sequences(), 1, options,
                [&](Index x, Index y, Index) { key_block(sums, x, y % columns, y / columns); });
  grid(tiles, columns, sequences(), options, [&](Index x, Index h, Index b) { key_block(sums, x, h, b); });
}

void BackwardProgram::key_block(KeySums sums, const Expr& x, const Expr& h, const Expr& b) {
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
      when(begin < end, [&] {
        const HeadViews last{views.rows, kv_head, end - 1};
        const GradientTiles tiles = c.key_tiles();
        ScoreRange visible = seen_from(x * c.keys, last.of_queries(*q).extent(0), last.of_keys(*k).extent(0));
        receiver(x, visible.tiles(tiles.queries).begin * tiles.queries, last)(contribution);
      });
    });
  };
  if (c.pack > 1) {
    add_member(tile, sums, x, views, {});
  } else if (c.splits > 1) {
    Expr split = h % c.splits, each = ceildiv(*group, c.splits / c.row_splits);
    if (c.row_splits > 1) row_part.emplace(split % c.row_splits);
    Expr first_member = (c.row_splits > 1 ? split / c.row_splits : split) * each;
    add_members(range(first_member, min(first_member + each, *group)));
    tile.store(views.of_keys(dk_splits->slice(split)), views.of_keys(dv_splits->slice(split)), first);
    return;
  } else {
    add_members(range(0, *group));
  }
  tile.store(views.of_keys(*dk), views.of_keys(*dv), first);
}

// No other block adds to these rows.
KeyGradient::Receiver BackwardProgram::adds_to(const Tensor& to, const Expr& row) const {
  return [this, to, row](const Fragment& contribution) {
    Fragment sums = load(to.at(row), {c.queries, c.features()});
    parallel(sums, [&](Index i, Index j) { sums(i, j) += contribution(i, j); });
    copy(sums, to.at(row));
  };
}

KeyGradient::Receiver BackwardProgram::stores_to(const Tensor& to, const Expr& row) const {
  return [this, to, row](const Fragment& contribution) {
    Fragment rows("rows", {c.queries, c.features()}, f32);
    parallel(rows, [&](Index i, Index j) { rows(i, j) = contribution(i, j) * gradient().factor(); });
    copy(rows, to.at(row));
  };
}

// Adds to the sums of dq of the queries from `row` on.
KeyGradient::Receiver BackwardProgram::receiver(const Expr& x, const Expr& row,
                                                const HeadViews& views) const {
  if (c.alone) return stores_to(views.of_queries(*dq), row);
  if (!sum) return {};
  if (c.shares) return adds_to(views.vector(sum->slice(*share)), row);
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
  // Nobody else writes the rows that see none of these keys.
  Range steps = own_steps(c.alone ? range(0, ceildiv(views.of_queries(*q).extent(0), tiles.queries))
                                  : visible.tiles(tiles.queries));
  Expr begin = steps.begin, end = steps.end;
  pipelined(range(begin, end), {.stages = 2}, [&](Index j) {
    Expr row = (begin + end - 1 - j) * tiles.queries;
    // The first step of a head has the last one of the head before behind it: its first rows.
    const KeyGradient::Receiver of_step_before = [&](const Fragment& contribution) {
      Expr same = j > begin;
      when(same || turn->member > turn->first, [&] {
        const HeadViews before{views.rows, views.kv_head, turn->member - select(same, 0, 1)};
        receiver(x, select(same, begin + end - j, begin) * tiles.queries, before)(contribution);
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
  Range steps = own_steps(visible.tiles(tiles.queries));
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

}  // namespace backward

lang::Kernel attention_backward_kernel(const AttentionBackwardKernel& instance) {
  return lang::kernel(instance_name("attention_backward", instance),
                      [&] { backward::BackwardProgram(instance).run(); });
}

}  // namespace tegula::ops

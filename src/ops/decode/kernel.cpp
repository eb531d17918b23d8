#include "ops/decode/kernel.hpp"

#include <algorithm>

#include "ops/decode/cache_tensors.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

struct Block;

struct Program : CacheTensors {
  using CacheTensors::CacheTensors;

  void run();
  void attend_blocks();
  // A part of the keys of a tile: the number of `count`, and where its results are.
  struct Part {
    Expr number, count, place;
    Range rows;
  };
  void attend_part(const Index& x, const Index& h, const Expr& b, const Expr& length);
  void attend_block(const Expr& x, const Index& h, const Expr& b, const Expr& length,
                    const std::optional<Part>& part);
  void store(const Block& block, const Fragment& sum, OnlineSoftmax& softmax,
             const std::optional<Part>& part) const;
  void merge_blocks();
  void merge_shared();
  void merge_block(const Expr& row, const Expr& head, const Expr& b, const Expr& place, const Range& parts);
};

// What a block works on: a tile of queries and heads of a group, and keys of one head.
struct Block {
  CacheTensors& p;
  const CacheKernel& c;
  Expr b, kv_head, member, first, length;
  CacheRows rows;
  ScoreRange visible;
  Expr factor;  // of scores

  Block(CacheTensors& tensors, const Expr& x, const Expr& h, const Expr& sequence, const Expr& own_length)
      : p(tensors),
        c(tensors.c),
        b(sequence),
        kv_head(h),
        member(x % p.member_tiles() * c.pack),
        first(x / p.member_tiles() * c.queries),
        length(own_length),
        rows(c.form, sequence, own_length, p.table),
        visible(first + own_length - p.queries, c.queries, p.queries - first, own_length, p.left,
                c.causal ? std::optional<Expr>(Expr(0)) : std::nullopt),
        factor(c.k_scale == CacheScale::head ? *p.scale * Expr((*p.k_scale)(0, 0, h)) : *p.scale) {}

  // Heads after those of the group are outside of the views: they read as zeros and are not written.
  HeadViews views() const {
    return {SequenceRows(b, p.queries, length), kv_head, c.pack > 1 ? Subscript(all) : Subscript(member)};
  }
  Subscript heads() const {
    Expr head = kv_head * p.group;
    return c.pack > 1 ? Subscript(range(head, head + p.group)) : Subscript(head + member);
  }
  // The keys of a step: from `first` on, where blocks are chosen those before `end`.
  struct Keys {
    Expr first;
    std::optional<Expr> end;
  };
  Keys keys_of(const Expr& j) const {
    if (!p.lists) return {j * c.keys, {}};
    const SortedLists::List list = p.lists->list(b, kv_head, 0);
    Expr begin = list.blocks(j / c.tiles_of_block()) * c.block,
         first = begin + j % c.tiles_of_block() * c.keys;
    return {first, c.block % c.keys == 0 ? std::nullopt : std::optional<Expr>(begin + c.block)};
  }
  Range all_steps() const {
    if (!p.lists) return visible.tiles(c.keys);
    return range(0, p.lists->list(b, kv_head, 0).count * c.tiles_of_block());
  }
  Expr sees(const CacheRows::Step& step, const Keys& keys, const Expr& t, const Expr& row) const {
    Expr key = keys.first, query = row / c.pack;
    Operand all = visible.sees(query, key + t) && step.is_there(t);
    if (keys.end) all = all && key + t < *keys.end;
    Expr seen = all;
    if (!c.tree) return seen;
    Expr newest = key + t - (length - p.queries);
    return seen && (newest < 0 || (*p.tree)(b, first + query, newest));
  }
  // Scales columns by the factors of the tokens of a step.
  void scale_columns(const Tensor& scales, const CacheRows::Step& step, Fragment& scores) const {
    Shared factors({c.keys}, f32);
    parallel(factors, [&](Index t) {
      const auto [page, row] = step.place(t);
      factors(t) = scales(page, row, kv_head);
    });
    parallel(scores, [&](Index r, Index t) { scores(r, t) *= factors(t); });
  }

  // Heads of a group see the same: the mask is read once for all of them, and by neighbouring threads.
  // Latents leave no room for it.
  void hide_by_tree(const CacheRows::Step& step, const Keys& keys, Fragment& scores) const {
    Shared seen({c.queries, c.keys}, boolean);
    parallel(seen, [&](Index i, Index t) { seen(i, t) = sees(step, keys, t, i * c.pack); });
    parallel(scores,
             [&](Index r, Index t) { scores(r, t) = select(seen(r / c.pack, t), scores(r, t), -inf); });
  }
  void weigh(const CacheRows::Step& step, const Keys& keys, Fragment& scores, OnlineSoftmax& softmax,
             Fragment& sum) const;
  void store(const Fragment& sum, const Tensor& to) const {
    if (c.latent)
      store_elements(sum, to);
    else if (c.pack > 1)
      copy(sum.reshape({c.queries, c.pack, sum.extent(1)}), to.at(first, member));
    else
      copy(sum, to.at(first));
  }
  // Without buffers of the copy engine, which would take the room of latents.
  void store_elements(const Fragment& sum, const Tensor& to) const {
    parallel(sum, [&](Index r, Index d) {
      if (c.pack > 1)
        to(first + r / c.pack, member + r % c.pack, d) = sum(r, d);
      else
        to(first + r, d) = sum(r, d);
    });
  }
  void store_lse(const Fragment& lse, const Tensor& to) const {
    if (c.pack > 1)
      copy(lse.reshape({c.queries, c.pack}).T(), to.at(member, first));
    else
      copy(lse, to.at(first));
  }
  // Features of queries; those of a tile that is wider are zeros.
  void load_columns(const Tensor& q, int begin, int count, Shared& tile) const {
    if (c.form.by_threads && !are_whole_pieces(c.dim, c.type)) return load_elements(q, begin, tile);
    const bool whole = tile.extent(1) == count;
    const Range own = range(begin, begin + count);
    const int column = whole ? begin : 0;
    if (c.pack > 1)
      copy((whole ? q : q.slice(all, all, own)).at(first, member, column),
           tile.reshape({c.queries, c.pack, tile.extent(1)}));
    else
      copy((whole ? q : q.slice(all, own)).at(first, column), tile);
  }
  // The copy engine takes no rows that begin off 16 bytes.
  void load_elements(const Tensor& q, int begin, Shared& tile) const {
    parallel(tile, [&](Index r, Index d) {
      tile(r, d) =
          c.pack > 1 ? q(first + r / c.pack, member + r % c.pack, begin + d) : q(first + r, begin + d);
    });
  }
  void load_latents(const CacheRows::Step& step, Shared& tile) const;
  void attend(const Tensor& q, const Range& steps, OnlineSoftmax& softmax, Fragment& sum) const;
  void attend_latents(const Tensor& q, const Range& steps, OnlineSoftmax& softmax, Fragment& sum) const;
};

// The features of a tile that products need.
Shared multiplied(const Shared& tile, int features) {
  return features == tile.extent(1) ? tile.reshape({tile.extent(0), features})
                                    : tile.slice(all, range(0, features));
}

// Scores become weights, and what was accumulated is rescaled.
void Block::weigh(const CacheRows::Step& step, const Keys& keys, Fragment& scores, OnlineSoftmax& softmax,
                  Fragment& sum) const {
  if (c.k_scale == CacheScale::token) scale_columns(*p.k_scale, step, scores);
  cap_scores(scores, factor, c.softcap, c.compute);
  Expr key = keys.first;
  Expr hidden = keys.end ? Expr(Operand(true)) : Expr(visible.is_partial(key, c.keys) || step.has_gaps());
  when(c.tree ? hidden || key + c.keys > length - p.queries : hidden, [&] {
    if (c.tree && !c.latent) return hide_by_tree(step, keys, scores);
    parallel(scores,
             [&](Index r, Index t) { scores(r, t) = select(sees(step, keys, t, r), scores(r, t), -inf); });
  });
  scale_rows(sum, softmax.update(scores));
}

void Block::attend(const Tensor& q, const Range& steps, OnlineSoftmax& softmax, Fragment& sum) const {
  Shared queries_tile({c.rows(), c.padded.of(c.dim)}, c.compute);
  load_columns(q, 0, c.dim, queries_tile);
  pipelined(steps, {.stages = 2}, [&](Index j) {
    const Keys keys = keys_of(j);
    const CacheRows::Step step(rows, keys.first, c.keys, *p.k);
    Shared k_tile({c.keys, c.padded.of(c.dim)}, c.compute),
        v_tile({c.keys, c.padded.of_v(c.dim_v)}, c.compute);
    step.load(*p.k, kv_head, 0, k_tile, false);
    Fragment scores({c.rows(), c.keys}, f32, 0);
    gemm(multiplied(queries_tile, c.features()), multiplied(k_tile, c.features()).T(), scores);
    weigh(step, keys, scores, softmax, sum);
    // What follows the end of a sequence may be NaN.
    step.load(*p.v, kv_head, 0, v_tile, c.form.lengths);
    if (c.v_scale == CacheScale::token) scale_columns(*p.v_scale, step, scores);
    add_product(scores, multiplied(v_tile, c.features_v()), sum, c.compute);
  });
}

// The tile of the latents of a step, which are keys and values.
void Block::load_latents(const CacheRows::Step& step, Shared& tile) const {
  if (c.record == CacheRecord::none) {
    const bool exact = tile.extent(1) == c.dim_v;
    return step.load(exact ? *p.k : p.k->slice(all, all, all, range(0, c.dim_v)), kv_head, 0, tile,
                     c.form.lengths);
  }
  const bool powers = c.record == CacheRecord::tiles_of_64;
  parallel(tile, [&](Index t, Index d) {
    const auto [page, row] = step.place(t);
    Expr factor = (*p.factors)(page, row, 0, powers ? d / 64 : d / 128),
         power = powers ? bitcast(u32(factor) << 23, f32) : factor;
    Expr value = (*p.k)(page, row, 0, d) * power;
    tile(t, d) =
        powers ? select(d < c.in_8_bits(), value, (*p.last)(page, row, 0, d - c.in_8_bits())) : value;
  });
}

void Block::attend_latents(const Tensor& q, const Range& steps, OnlineSoftmax& softmax, Fragment& sum) const {
  const int latents = c.padded.of_v(c.dim_v), rest = c.padded.of(c.rest());
  Shared q_latents({c.rows(), latents}, c.compute), q_rest({c.rows(), std::max(rest, 1)}, c.compute);
  load_columns(q, 0, c.dim_v, q_latents);
  if (rest > 0) load_columns(q, c.dim_v, c.rest(), q_rest);
  const bool is_converted = c.record != CacheRecord::none;
  const auto load_rest = [&](const CacheRows::Step& step) {
    Shared tile({c.keys, rest}, c.compute);
    step.load(is_converted ? *p.last : *p.k, kv_head, is_converted ? 0 : c.dim_v, tile, false);
    return tile;
  };
  pipelined(steps, {.stages = 2}, [&](Index j) {
    const Keys keys = keys_of(j);
    const CacheRows::Step step(rows, keys.first, c.keys, *p.k);
    // The copy engine brings what is not converted while threads convert the other features.
    std::optional<Shared> rest_tile;
    if (rest > 0 && is_converted) rest_tile.emplace(load_rest(step));
    Shared tile({c.keys, latents}, c.compute);
    load_latents(step, tile);
    Fragment scores({c.rows(), c.keys}, f32, 0);
    gemm(q_latents, tile.T(), scores);
    if (rest > 0) {
      if (!is_converted) rest_tile.emplace(load_rest(step));
      gemm(q_rest, rest_tile->T(), scores);
    }
    weigh(step, keys, scores, softmax, sum);
    if (c.v_scale == CacheScale::token) scale_columns(*p.v_scale, step, scores);
    add_product(scores, multiplied(tile, c.features_v()), sum, c.compute);
  });
}

void Program::run() {
  if (lists) lists->record_grid();
  if (list) list->record_grid();
  attend_blocks();
  if (c.split || c.shares) merge_blocks();
}

void Program::attend_blocks() {
  Expr tiles = ceildiv(queries, c.queries) * member_tiles();
  grid(
      c.split ? tiles * *splits : tiles, heads, list ? list->count() : Expr(batch),
      [&](Index x, Index h, Index z) {
        if (!list) return attend_part(x, h, z, length_of(z));
        const SequenceList::Entry entry = list->entry(z);
        if (!c.shares) return attend_part(x, h, entry.sequence, entry.length);
        exit_if(entry.parts == 0);
        attend_block(x, h, entry.sequence, entry.length, Part{entry.part, entry.parts, z, range(0, queries)});
      });
}

// With splits, block x computes split x % splits of a tile.
void Program::attend_part(const Index& x, const Index& h, const Expr& b, const Expr& length) {
  if (!c.split) return attend_block(x, h, b, length, {});
  Expr count = max(*splits, 1);
  attend_block(x / count, h, b, length,
               Part{x % count, count, x % count, range(b * queries, (b + 1) * queries)});
}

void Program::attend_block(const Expr& x, const Index& h, const Expr& b, const Expr& length,
                           const std::optional<Part>& part) {
  if (lengths) assert_that(length <= room(), cache_is_too_short);
  const Block block(*this, x, h, b, max(length, 0));
  const HeadViews views = block.views();
  Fragment sum({c.rows(), c.features_v()}, f32, 0);
  OnlineSoftmax softmax(c.rows(), cap ? *cap * log2e : block.factor);
  const Range all_steps = block.all_steps(),
              steps = part ? SplitResults::steps(all_steps, part->number, part->count) : all_steps;
  if (c.latent)
    block.attend_latents(views.of_queries(*q), steps, softmax, sum);
  else
    block.attend(views.of_queries(*q), steps, softmax, sum);
  if (c.sinks && !c.split)
    softmax.add_sink(sum, [&](Index r) -> Expr {
      Expr own = (*sinks)(block.kv_head, block.member + (c.pack > 1 ? r % c.pack : Expr(0))) * log2e;
      return c.shares ? select(part->count == 1, own, -inf) : own;
    });
  softmax.normalize(sum);
  if (c.v_scale == CacheScale::head) {
    Expr factor = (*v_scale)(0, 0, h);
    parallel(sum, [&](Index r, Index d) { sum(r, d) *= factor; });
  }
  store(block, sum, softmax, part);
}

// What a block finds is the result, unless another one has a part of its keys.
void Program::store(const Block& block, const Fragment& sum, OnlineSoftmax& softmax,
                    const std::optional<Part>& part) const {
  const HeadViews views = block.views();
  const auto store_whole = [&] {
    block.store(sum, views.of_queries(*out));
    block.store_lse(softmax.lse(), views.vector(*lse));
  };
  const auto store_part = [&] {
    block.store(sum, split_results->out(part->rows, block.heads(), part->place));
    block.store_lse(softmax.lse(), split_results->lse(part->rows, block.heads(), part->place));
  };
  if (!part) return store_whole();
  if (!c.shares) return store_part();
  when(part->count == 1, store_whole).otherwise(store_part);
}

void Program::merge_blocks() {
  if (c.shares) return merge_shared();
  grid(queries, heads * group, batch, [&](Index row, Index head, Index b) {
    merge_block(row, head, b, b * queries + row, range(0, *splits));
  });
}

// Few blocks look for work that there may not be.
void Program::merge_shared() {
  constexpr int at_once = 8;
  grid(queries, heads * group, min(list->most_merged(), at_once), [&](Index row, Index head, Index z) {
    serial(ceildiv(list->most_merged() - z, at_once), [&](Index n) {
      Expr first = list->first_entry(z + n * at_once);
      break_if(first < 0);
      const SequenceList::Entry entry = list->entry(first);
      merge_block(row, head, entry.sequence, row, range(first, first + entry.parts));
    });
  });
}

void Program::merge_block(const Expr& row, const Expr& head, const Expr& b, const Expr& place,
                          const Range& parts) {
  Expr kv_head = head / group, member = head % group;
  (*lse)(b, kv_head, member, row) = split_results->merge(
      place, head, parts, sinks ? std::optional<Expr>((*sinks)(kv_head, member)) : std::nullopt,
      out->slice(b, row, kv_head, member));
}

}  // namespace

bool CacheKernel::take_few_rows(std::int64_t all_queries, int most) {
  constexpr int columns = 8;  // of a product
  const int unit = std::max(columns, pack);
  const std::int64_t few = (all_queries * pack + unit - 1) / unit * unit;
  if (compute.bits() != 16 || keys % warp_group_rows != 0 || few > most) return false;
  queries = static_cast<int>(few) / pack;
  return true;
}

Kernel cache_kernel(const CacheKernel& instance) {
  return kernel(instance_name("attention_with_kv_cache", instance), [&] { Program(instance).run(); });
}

}  // namespace tegula::ops

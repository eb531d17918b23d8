#include "ops/attention/kernel.hpp"

#include "ops/lists/later_first.hpp"
#include "ops/lists/packed_tiles.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/splits.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// The features of a tile that products need.
Shared multiplied(const Shared& tile, int features) {
  return features == tile.extent(1) ? tile.reshape({tile.extent(0), features})
                                    : tile.slice(all, range(0, features));
}

// The power of two by which 8-bit weights are scaled up; the largest e4m3 number is 448.
constexpr float lift_of_8_bits = 8;
// Transposed values of a sequence begin at a multiple of so many columns, which have an order of their own.
constexpr int keys_in_order = 16;

// The signature: the optional scalars stand after the tensors.
struct Program {
  const AttentionKernel& c;
  std::optional<Dim> batch, queries, keys, group;  // group: unless a tile has just its heads
  Dim heads{"kv_heads"};
  std::optional<Tensor> q, k, v, out, lse, q_begin, k_begin, sinks;
  std::optional<Expr> scale, left, right, cap, longest, splits;
  std::optional<SplitResults> split_results;  // of the keys
  std::optional<Tensor> q_scale, k_scale, v_scale;
  std::optional<PackedTiles> packed_tiles;
  std::optional<KeyShares> shares;
  std::optional<Tensor>
      transposed;  // values [(batch,) heads, features, keys], of each 16 keys in their own order
  std::optional<Expr> longest_k;  // of packed sequences, whose values are transposed

  explicit Program(const AttentionKernel& instance) : c(instance) {
    if (c.pack == 1 || c.parted) group.emplace("group");
    if (!c.varlen) batch.emplace("batch");
    queries.emplace("queries");
    keys.emplace("keys");
    if (c.varlen)
      declare({*queries}, {*keys});
    else
      declare({*batch, *queries}, {*batch, *keys});
    scale.emplace(scalar("scale", f32));
    if (c.left) left.emplace(scalar("left", i32));
    if (c.right) right.emplace(scalar("right", i32));
    if (c.softcap != ScoreCap::none) cap.emplace(scalar("cap", f32));
    if (c.sinks) sinks.emplace(input("sinks", {heads, group_extent()}, *c.sinks));
    if (c.varlen) declare_sequences();
    if (c.split) declare_splits();
    declare_factors();
    if (c.varlen && c.transposes_values()) longest_k.emplace(scalar("longest_k", i32));
  }

  // By which grids are divided: those that share tiles are one.
  Expr all_heads() const { return group ? heads * tiles_of_group() : Expr(heads); }
  Expr tiles_of_group() const {
    if (!group) return Operand(1);
    return c.parted ? ceildiv(*group, c.pack) : Expr(*group);
  }
  Operand group_extent() const { return group ? Operand(*group) : Operand(c.pack); }

  void declare(const Extents& q_tokens, const Extents& k_tokens) {
    q.emplace(input("q", joined(q_tokens, {heads, group_extent(), c.dim}), c.type));
    k.emplace(input("k", joined(k_tokens, {heads, c.dim}), c.type));
    v.emplace(input("v", joined(k_tokens, {heads, c.dim_v}), c.type));
    out.emplace(output("out", joined(q_tokens, {heads, group_extent(), c.dim_v}), c.out_type()));
    if (c.varlen)
      lse.emplace(output("lse", {heads, group_extent(), *queries}, f32));
    else
      lse.emplace(output("lse", {*batch, heads, group_extent(), *queries}, f32));
  }

  void declare_sequences() {
    Dim fences("fences");
    q_begin.emplace(input("q_begin", {fences}, i32));
    k_begin.emplace(input("k_begin", {fences}, i32));
    longest.emplace(scalar("longest", i32));
    if (c.listed) packed_tiles.emplace("tile_owners", *q_begin, c.queries);
  }

  void declare_splits() {
    if (c.shares) {
      shares.emplace(KeyShares::of_packed(*q_begin, *k_begin, *queries, c.queries, c.keys), all_heads());
      split_results.emplace(c.queries, heads * group_extent(), shares->count(), c.features_v());
      return;
    }
    splits.emplace(scalar("splits", i32));
    Expr tokens = c.varlen ? Expr(*queries) : *batch * *queries;
    split_results.emplace(tokens, heads * group_extent(), *splits, c.features_v());
  }

  void declare_factors() {
    std::optional<Dim> packed;
    if (c.varlen && (c.q_scale || c.k_scale || c.v_scale)) packed.emplace("sequences");
    const auto declared = [&](bool given, std::optional<Tensor>& factors, const char* name) {
      if (given) factors.emplace(input(name, {packed ? Operand(*packed) : Operand(*batch), heads}, f32));
    };
    declared(c.q_scale, q_scale, "q_scale");
    declared(c.k_scale, k_scale, "k_scale");
    declared(c.v_scale, v_scale, "v_scale");
  }

  void run();
  void copy_rows();
  void transpose_values();
  Tensor transposed_of(const Expr& sequence, const Expr& kv_head) const {
    return c.varlen ? transposed->slice(kv_head) : transposed->slice(sequence, kv_head);
  }
  // Where the transposed values of a sequence begin: there is room for the last columns of each, which it
  // does not fill.
  Expr first_transposed(const Expr& sequence) const {
    if (!c.varlen) return Operand(0);
    return (Expr((*k_begin)(sequence)) / keys_in_order + sequence) * keys_in_order;
  }
  void attend_grid();
  void merge_grid();
  Expr most_queries() const { return c.varlen ? *longest : Expr(*queries); }
  Expr sequences() const { return c.varlen ? q_begin->extent(0) - 1 : Expr(*batch); }
  SequenceRows rows_of(const Expr& b) const {
    return c.varlen ? SequenceRows(b, *q_begin, *k_begin) : SequenceRows(b, *queries, *keys);
  }
  // Among those of all sequences.
  Range all_rows(const Expr& b) const {
    return c.varlen ? rows_of(b).queries : range(b * *queries, (b + 1) * *queries);
  }
  Expr sink(const Expr& kv_head, const Expr& member) const { return (*sinks)(kv_head, member); }
  // One of the parts into which the keys of a tile are divided, and where what it finds is kept.
  struct Part {
    Expr number, count, place;
    Range rows;
  };
  // The heads of a block: of a group the first, those from it on, and the same among all heads. Tiles may
  // have room for more than the group has: what is outside reads as zeros and is not written.
  struct OwnHeads {
    Expr kv_head, member;
    Subscript members, all;
  };
  OwnHeads own_heads(const Index& h) const;
  void attend_shares();
  void attend_block(const Expr& tile, const Index& h, const Expr& b, const std::optional<Part>& part);
  void merge_share(const Index& x, const Index& head, const Index& row);
  // What raw scores of the head are multiplied by.
  Expr scale_of(const Expr& sequence, const Expr& kv_head) const {
    Expr of_queries = q_scale ? *scale * Expr((*q_scale)(sequence, kv_head)) : *scale;
    return k_scale ? of_queries * Expr((*k_scale)(sequence, kv_head)) : of_queries;
  }
  void attend(const Shared& queries_tile, const HeadViews& views, const ScoreRange& range, const Range& steps,
              const Expr& own_scale, OnlineSoftmax& softmax, Fragment& sum);
  void add_values(const Fragment& weights, const Shared& values, Fragment& sum) const;
  void merge_block(const Index& row, const Index& head, const Index& b);
};

void Program::run() {
  const Tensor result = *out;
  copy_rows();
  if (c.transposes_values()) transpose_values();
  attend_grid();
  if (c.split) merge_grid();
  if (c.padded.copied) copy_features(*out, result, c.features_v(), !c.varlen);
}

// The later grids work on rows of more features.
void Program::copy_rows() {
  const auto copied = [&](std::optional<Tensor>& tensor, const char* name, int features) {
    const Tensor rows = with_features(name, *tensor, features);
    copy_features(*tensor, rows, features, !c.varlen);
    tensor.emplace(rows);
  };
  if (c.padded.copied || c.padded.copied_keys) {
    copied(k, "k_rows", c.features());
    copied(v, "v_rows", c.features_v());
  }
  if (!c.padded.copied) return;
  copied(q, "q_rows", c.features());
  out.emplace(with_features("out_rows", *out, c.features_v()));
}

// Products of 8 bits read values along the keys.
void Program::transpose_values() {
  constexpr int keys_of_block = 64;
  Expr width =
      (c.varlen ? *keys / keys_in_order + sequences() : ceildiv(*keys, keys_in_order)) * keys_in_order;
  transposed.emplace(c.varlen ? workspace("turned", {heads, c.dim_v, width}, c.type)
                              : workspace("turned", {*batch, heads, c.dim_v, width}, c.type));
  // Those of a sequence end where those of the next one begin, with zeros.
  Expr most_columns = c.varlen ? *longest_k + 2 * keys_in_order : width;
  grid(ceildiv(most_columns, keys_of_block), heads, sequences(), [&](Index x, Index h, Index b) {
    const HeadViews views{rows_of(b), h, Subscript(all)};
    Expr begin = first_transposed(b), end = c.varlen ? first_transposed(b + 1) : begin + width;
    if (c.varlen) exit_if(begin + x * keys_of_block >= end);
    const Tensor of_head = transposed_of(b, h);
    Shared rows("rows", {keys_of_block, c.dim_v}, c.type),
        columns("columns", {c.dim_v, keys_of_block}, c.type);
    copy(views.of_keys(*v).at(x * keys_of_block), rows);
    // Neighbouring threads read neighbouring features, which are in different banks.
    parallel(keys_of_block / keys_in_order, c.dim_v, keys_in_order, [&](Index run, Index feature, Index i) {
      Expr at = run * keys_in_order + i;
      columns(feature, at) = rows(key_at(at), feature);
    });
    copy(columns, c.varlen ? of_head.slice(all, range(begin, end)).at(0, x * keys_of_block)
                           : of_head.at(0, x * keys_of_block));
  });
}

void Program::attend_grid() {
  Expr tiles = ceildiv(most_queries(), c.queries);
  GridOptions options;
  if (c.right && !c.left)
    options.order = later_first(c.varlen ? *keys / max(sequences(), 1) : Expr(*keys),
                                (c.dim + c.dim_v) * c.type.bits() / 8, tiles_of_group());
  if (shares) return attend_shares();
  if (packed_tiles)
    return grid(packed_tiles->count(), all_heads(), 1, options, [&](Index x, Index h, Index) {
      const PackedTiles::Place place = packed_tiles->place(x);
      attend_block(place.tile, h, place.sequence, {});
    });
  grid(c.split ? tiles * *splits : tiles, all_heads(), sequences(), options, [&](Index x, Index h, Index b) {
    if (!c.split) return attend_block(x, h, b, {});
    attend_block(x / *splits, h, b, Part{x % *splits, *splits, x % *splits, all_rows(b)});
  });
}

void Program::attend_shares() {
  shares->record_grid();
  grid(shares->count(), all_heads(), [&](Index x, Index h) {
    const KeyShares::Share own = shares->share(x);
    exit_if(!own.exists);
    attend_block(own.tile, h, own.sequence, Part{own.part, own.parts, x, range(0, c.queries)});
  });
}

void Program::merge_grid() {
  if (shares) {
    grid(shares->count(), heads * group_extent(), min(most_queries(), c.queries),
         [&](Index x, Index head, Index row) { merge_share(x, head, row); });
    return;
  }
  grid(most_queries(), heads * group_extent(), sequences(),
       [&](Index row, Index head, Index b) { merge_block(row, head, b); });
}

// Scores of key tiles, and their weighted sum of values.
void Program::attend(const Shared& queries_tile, const HeadViews& views, const ScoreRange& range,
                     const Range& steps, const Expr& own_scale, OnlineSoftmax& softmax, Fragment& sum) {
  // Tensor cores keep 14 bits of the sums of up to 512 8-bit products, which is more than the operands have.
  const lang::GemmOptions products{.accumulate =
                                       c.compute == e4m3 ? Accumulate::tensor_core : Accumulate::promoted};
  const int value_rows = c.transposes_values() ? c.features_v() : c.keys,
            value_columns = c.transposes_values() ? c.keys : c.padded.of_v(c.dim_v);
  const Tensor keys_of = views.of_keys(*k), values_of = c.transposes_values()
                                                            ? transposed_of(views.rows.b, views.kv_head)
                                                            : views.of_keys(*v);
  Expr first_value = c.transposes_values() ? first_transposed(views.rows.b) : Expr(Operand(0));
  pipelined(steps, {.stages = 2}, [&](Index j) {
    Shared key_tile("key_tile", {c.keys, c.padded.of(c.dim)}, c.compute),
        value_tile("value_tile", {value_rows, value_columns}, c.weight_type());
    copy(keys_of.at(j * c.keys), key_tile);
    Fragment scores("scores", {c.rows(), c.keys}, f32, 0);
    gemm(multiplied(queries_tile, c.features()), multiplied(key_tile, c.features()).T(), scores, products);
    cap_scores(scores, own_scale, c.softcap, c.compute);
    when(range.is_partial(j * c.keys, c.keys), [&] {
      parallel(scores, [&](Index r, Index t) {
        scores(r, t) = select(range.sees(r / c.pack, j * c.keys + t), scores(r, t), -inf);
      });
    });
    scale_rows(sum, softmax.update(scores));
    copy(c.transposes_values() ? values_of.at(0, first_value + j * c.keys) : values_of.at(j * c.keys),
         value_tile);
    add_values(scores, value_tile, sum);
  });
}

void Program::add_values(const Fragment& weights, const Shared& values, Fragment& sum) const {
  if (!c.transposes_values())
    return add_product(weights, multiplied(values, c.features_v()), sum, c.weight_type());
  gemm(byte_weights(weights, c.weight_type()), values.T(), sum, {.accumulate = Accumulate::tensor_core});
}

Program::OwnHeads Program::own_heads(const Index& h) const {
  if (c.pack == 1) return {h / *group, h % *group, h % *group, h};
  if (!c.parted) return {h, 0, all, range(h * c.pack, (h + 1) * c.pack)};
  const Expr kv_head = h / tiles_of_group(), member = h % tiles_of_group() * c.pack, begin = kv_head * *group;
  return {kv_head, member, range(member, *group), range(begin + member, begin + *group)};
}

void Program::attend_block(const Expr& tile, const Index& h, const Expr& b, const std::optional<Part>& part) {
  const OwnHeads own = own_heads(h);
  const Expr kv_head = own.kv_head, member = own.member;
  const HeadViews views{rows_of(b), kv_head, own.members};
  const Tensor q_of = views.of_queries(*q);
  Expr first = tile * c.queries, count = q_of.extent(0);
  if (c.varlen) {
    assert_queries(count, *longest);
    exit_if(first >= count);
  }

  Shared queries_tile("queries_tile", {c.rows(), c.padded.of(c.dim)}, c.compute);
  load_queries(q_of, first, queries_tile, c.pack);
  Fragment sum("sum", {c.rows(), c.features_v()}, f32, 0);
  Expr own_scale = scale_of(b, kv_head);
  OnlineSoftmax softmax(c.rows(), cap ? *cap * log2e : own_scale, c.transposes_values() ? lift_of_8_bits : 0);
  Expr keys_seen = views.of_keys(*k).extent(0);
  ScoreRange visible(first + keys_seen - count, c.queries, count - first, keys_seen, left, right);
  const Range all_steps = visible.tiles(c.keys);
  attend(queries_tile, views, visible,
         part ? SplitResults::steps(all_steps, part->number, part->count) : all_steps, own_scale, softmax,
         sum);
  if (c.sinks && !c.split)
    softmax.add_sink(sum, [&](Index r) -> Expr {
      return sink(kv_head, c.pack > 1 ? member + r % c.pack : member) * log2e;
    });
  softmax.normalize(sum);
  if (c.v_scale) {
    Expr factor = (*v_scale)(b, kv_head);
    parallel(sum, [&](Index i, Index j) { sum(i, j) *= factor; });
  }
  // Rows of shares are those of a tile.
  Expr row = c.shares ? Expr(Operand(0)) : first;
  store_rows(sum, part ? split_results->out(part->rows, own.all, part->place) : views.of_queries(*out), row,
             c.pack);
  store_lse(softmax.lse(), part ? split_results->lse(part->rows, own.all, part->place) : views.vector(*lse),
            row, c.pack);
}

// The first share of a tile merges all of them.
void Program::merge_share(const Index& x, const Index& head, const Index& row) {
  Expr kv_head = head / group_extent(), member = head % group_extent();
  const KeyShares::Share own = shares->share(x);
  exit_if(!own.exists || own.part != 0);
  const HeadViews views{rows_of(own.sequence), kv_head, Subscript(member)};
  const Tensor out_of = views.of_queries(*out), lse_of = views.vector(*lse);
  Expr own_row = own.tile * c.queries + row;
  exit_if(own_row >= out_of.extent(0));
  lse_of(own_row) = split_results->merge(row, head, range(x, x + own.parts),
                                         c.sinks ? std::optional(sink(kv_head, member)) : std::nullopt,
                                         out_of.slice(own_row));
}

void Program::merge_block(const Index& row, const Index& head, const Index& b) {
  Expr kv_head = head / group_extent(), member = head % group_extent();
  const HeadViews views{rows_of(b), kv_head, Subscript(member)};
  const Tensor out_of = views.of_queries(*out), lse_of = views.vector(*lse);
  if (c.varlen) exit_if(row >= out_of.extent(0));
  Expr own_row = all_rows(b).begin + row;
  lse_of(row) = split_results->merge(
      own_row, head, c.sinks ? std::optional(sink(kv_head, member)) : std::nullopt, out_of.slice(row));
}

}  // namespace

Kernel attention_kernel(const AttentionKernel& instance) {
  return kernel(instance_name("attention", instance), [&] { Program(instance).run(); });
}

}  // namespace tegula::ops

#include "ops/attention/kernel.hpp"

#include <fmt/format.h>

#include "ops/attention/scores.hpp"
#include "ops/common/softmax.hpp"

namespace tegula::ops {

using namespace lang;

std::string AttentionKernel::name() const {
  return fmt::format("attention_{}_{}_d{}_v{}_g{}_q{}_k{}{}{}{}{}{}", type.name(), compute.name(), dim, dim_v,
                     pack, queries, keys, left ? "_left" : "", right ? "_right" : "",
                     softcap ? "_softcap" : "", sinks ? fmt::format("_sinks_{}", sinks->name()) : "",
                     varlen ? "_varlen" : "");
}

namespace {

// The signature: the optional scalars stand after the tensors.
struct Program {
  const AttentionKernel& c;
  std::optional<Dim> batch, queries, keys, group;  // group: of query heads, where they do not share tiles
  Dim heads{"kv_heads"};
  std::optional<Tensor> q, k, v, out, lse, q_begin, k_begin, sinks;
  std::optional<Expr> scale, left, right, cap, longest;

  explicit Program(const AttentionKernel& instance) : c(instance) {
    if (c.pack == 1) group.emplace("group");
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
    if (c.softcap) cap.emplace(scalar("cap", f32));
    if (c.sinks) sinks.emplace(input("sinks", {heads, group_extent()}, *c.sinks));
    if (c.varlen) declare_sequences();
  }

  Operand group_extent() const { return c.pack > 1 ? Operand(c.pack) : Operand(*group); }

  void declare(const Extents& q_tokens, const Extents& k_tokens) {
    auto with = [](const Extents& shape, const Extents& more) {
      Extents all_extents;
      for (const Extents* part : {&shape, &more})
        for (const Operand& extent : *part) all_extents.push_back(extent);
      return all_extents;
    };
    q.emplace(input("q", with(q_tokens, {heads, group_extent(), c.dim}), c.type));
    k.emplace(input("k", with(k_tokens, {heads, c.dim}), c.type));
    v.emplace(input("v", with(k_tokens, {heads, c.dim_v}), c.type));
    out.emplace(output("out", with(q_tokens, {heads, group_extent(), c.dim_v}), c.type));
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
  }

  void run();
  void block(const Index& x, const Index& h, const Index& b);
  void attend(const Tile& queries_tile, const Tensor& keys_of, const Tensor& values_of,
              const ScoreRange& range, OnlineSoftmax& softmax, Fragment& sum);
};

void Program::run() {
  Expr tiles = ceildiv(c.varlen ? *longest : Expr(*queries), c.queries);
  Expr sequences = c.varlen ? q_begin->extent(0) - 1 : Expr(*batch);
  Expr all_heads = c.pack > 1 ? Expr(heads) : heads * *group;
  GridOptions options;
  // Under a causal mask later queries see more keys.
  if (c.right && !c.left) options.order = Order::heavy_first([](Index x, Index, Index) -> Expr { return x; });
  grid(tiles, all_heads, sequences, options, [&](Index x, Index h, Index b) { block(x, h, b); });
}

// Scores of all key tiles that some query of the tile sees, and their weighted sum of values.
void Program::attend(const Tile& queries_tile, const Tensor& keys_of, const Tensor& values_of,
                     const ScoreRange& range, OnlineSoftmax& softmax, Fragment& sum) {
  pipelined(range.tiles(c.keys), {.stages = 2}, [&](Index j) {
    Shared key_tile({c.keys, c.dim}, c.compute), value_tile({c.keys, c.dim_v}, c.compute);
    copy(keys_of.at(j * c.keys), key_tile);
    Fragment scores({c.rows(), c.keys}, f32, 0);
    gemm(queries_tile, key_tile.T(), scores);
    if (c.softcap) cap_scores(scores, *scale, *cap);
    when(range.is_partial(j * c.keys, c.keys), [&] {
      parallel(scores, [&](Index r, Index t) {
        scores(r, t) = select(range.sees(r / c.pack, j * c.keys + t), scores(r, t), -inf);
      });
    });
    scale_rows(sum, softmax.update(scores));
    copy(values_of.at(j * c.keys), value_tile);
    add_product(scores, value_tile, sum, c.compute);
  });
}

void Program::block(const Index& x, const Index& h, const Index& b) {
  Expr kv_head = c.pack > 1 ? Expr(h) : h / *group, member = c.pack > 1 ? Expr(0) : h % *group;
  Range q_rows = c.varlen ? range((*q_begin)(b), (*q_begin)(b + 1)) : range(0, *queries);
  Range k_rows = c.varlen ? range((*k_begin)(b), (*k_begin)(b + 1)) : range(0, *keys);
  Slot heads_of = c.pack > 1 ? Slot(all) : Slot(member);
  auto tokens = [&](const Tensor& t, const Range& rows, const Slot& group_slot) {
    return c.varlen ? t.slice(rows, kv_head, group_slot) : t.slice(b, rows, kv_head, group_slot);
  };
  Tensor q_of = tokens(*q, q_rows, heads_of), out_of = tokens(*out, q_rows, heads_of);
  Tensor k_of = c.varlen ? k->slice(k_rows, kv_head) : k->slice(b, k_rows, kv_head);
  Tensor v_of = c.varlen ? v->slice(k_rows, kv_head) : v->slice(b, k_rows, kv_head);
  Tensor lse_of = c.varlen ? lse->slice(kv_head, heads_of, q_rows) : lse->slice(b, kv_head, heads_of, q_rows);
  Expr first = x * c.queries, count = q_of.extent(0);
  if (c.varlen) exit_if(first >= count);

  Shared queries_tile({c.rows(), c.dim}, c.compute);
  load_queries(q_of, first, queries_tile, c.pack);
  Fragment sum({c.rows(), c.dim_v}, f32, 0);
  OnlineSoftmax softmax(c.rows(), c.softcap ? Expr(log2e) : *scale);
  Expr keys_seen = k_of.extent(0);
  ScoreRange visible(first + keys_seen - count, c.queries, count - first, keys_seen, left, right);
  attend(queries_tile, k_of, v_of, visible, softmax, sum);
  if (c.sinks)
    softmax.add_sink(sum, [&](Index r) -> Expr {
      return (c.pack > 1 ? Expr((*sinks)(kv_head, r % c.pack)) : Expr((*sinks)(kv_head, member))) * log2e;
    });
  softmax.normalize(sum);
  store_rows(sum, out_of, first, c.pack);
  store_lse(softmax.lse(), lse_of, first, c.pack);
}

}  // namespace

Kernel attention_kernel(const AttentionKernel& instance) {
  return kernel(instance.name(), [&] { Program(instance).run(); });
}

}  // namespace tegula::ops

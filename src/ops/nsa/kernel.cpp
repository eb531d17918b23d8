#include "ops/nsa/kernel.hpp"

#include "ops/nsa/program.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

NsaProgram::NsaProgram(const NsaKernel& instance) : c(instance) {
  if (c.pack == 1) group.emplace("group");
  if (!c.varlen) batch.emplace("batch");
  const Operand members = c.pack > 1 ? Operand(c.members) : Operand(*group);
  const Extents batches = c.varlen ? Extents{} : Extents{*batch};
  const Extents of_q = joined(batches, {queries, heads, members}), of_k = joined(batches, {keys, heads});
  q.emplace(input("q", joined(of_q, {c.dim}), c.type));
  k.emplace(input("k", joined(of_k, {c.dim}), c.type));
  v.emplace(input("v", joined(of_k, {c.dim_v}), c.type));
  out.emplace(output("out", joined(of_q, {c.dim_v}), c.type));
  if (c.branches == 0 || c.keeps) lse.emplace(output("lse", joined(batches, {heads, members, queries}), f32));
  choice.emplace(input("choice", joined(of_q, {entries}), i32));
  scale.emplace(scalar("scale", f32));
  require(entries <= c.entries, "a row has no more entries than the instance");
  if (c.branches > 0) {
    compressed.emplace(input("compressed", joined(of_q, {c.dim_v}), c.type));
    if (c.branches > 2) window.emplace(input("window", joined(of_q, {c.dim_v}), c.type));
    gates.emplace(input("gates", joined(of_q, {c.branches}), c.gates));
    if (c.keeps) selected.emplace(output("selected", joined(of_q, {c.dim_v}), c.type));
  }
  if (c.counts) lengths.emplace(input("counts", of_q, i32));
  if (!c.varlen) return;
  Dim fences("fences");
  q_begin.emplace(input("q_begin", {fences}, i32));
  k_begin.emplace(input("k_begin", {fences}, i32));
  longest.emplace(scalar("longest", i32));
}

void NsaProgram::run() {
  if (c.lists) return run_with_lists();
  grid(tiles(), head_blocks(), sequences(), [&](Index x, Index h, Index b) { block(x, h, b); });
}

HeadViews NsaProgram::views_of(const Index& h, const Index& b) const {
  return {c.varlen ? SequenceRows(b, *q_begin, *k_begin) : SequenceRows(b, queries, keys),
          c.pack > 1 ? Expr(h) : h / *group, c.pack > 1 ? Slot(all) : Slot(h % *group)};
}

Selection NsaProgram::selection_of(const HeadViews& views) const {
  HeadViews one{views.rows, views.kv_head, c.pack > 1 ? Slot(0) : views.member};
  Selection selection{one.of_queries(*choice), {}};
  if (c.counts) selection.counts.emplace(one.of_queries(*lengths));
  return selection;
}

// Scores of keys that the query does not see become −∞; a key seen n times gets n times the weight.
void NsaProgram::mask(Fragment& scores, const BlockTile& keys_of, const TokenTile& tokens,
                      UnionList& chosen) const {
  auto apply = [&] {
    parallel(scores, [&](Index r, Index t) {
      Expr token = r / c.pack, key = keys_of.row(t);
      Expr sees = keys_of.counts(key) && key < tokens.limit(token);
      if (!c.has_times()) {
        scores(r, t) = select(sees, scores(r, t), -inf);
      } else {
        Expr times = chosen.times(keys_of.place(t), token);
        Expr score = c.repeats ? scores(r, t) + log2(f32(times)) / *scale : Expr(scores(r, t));
        scores(r, t) = select(sees && times > 0, score, -inf);
      }
    });
  };
  if (c.has_times() || keys_of.row_of)
    apply();
  else
    when(keys_of.ragged() || keys_of.first + c.keys > tokens.limit(Operand(0)), apply);
}

void NsaProgram::block(const Index& x, const Index& h, const Index& b) const {
  HeadViews views = views_of(h, b);
  Tensor q_of = views.of_queries(*q), k_of = views.of_keys(*k), v_of = views.of_keys(*v);
  TokenTile tokens{c.selected(), x * c.queries, q_of.extent(0), k_of.extent(0)};
  if (c.varlen) {
    assert_queries(tokens.count, *longest);
    exit_if(tokens.first >= tokens.count);
  }
  Shared q_tile({c.rows(), c.dim}, c.compute);
  load_queries(q_of, tokens.first, q_tile, c.pack);
  Fragment sum({c.rows(), c.dim_v}, f32, 0);
  OnlineSoftmax softmax(c.rows(), *scale);
  UnionList chosen(tokens, selection_of(views));
  walk_blocks(
      c.tiles(), [&](const Expr& n) { return chosen.block(n); }, chosen.count(),
      [&](const BlockTile& tile) {
        Shared k_tile({c.keys, c.dim}, c.compute), v_tile({c.keys, c.dim_v}, c.compute);
        tile.load(k_of, k_tile);
        Fragment scores({c.rows(), c.keys}, f32, 0);
        gemm(q_tile, k_tile.T(), scores);
        mask(scores, tile, tokens, chosen);
        scale_rows(sum, softmax.update(scores));
        tile.load(v_of, v_tile);
        add_product(scores, v_tile, sum, c.compute);
      });
  softmax.normalize(sum);
  store(sum, views, tokens.first);
  if (lse) store_lse(softmax.lse(), views.vector(*lse), tokens.first, c.pack);
}

void NsaProgram::store(Fragment& sum, const HeadViews& views, const Expr& first) const {
  if (selected) store_rows(sum, views.of_queries(*selected), first, c.pack);
  if (c.branches > 0) add_branches(sum, views, first);
  store_rows(sum, views.of_queries(*out), first, c.pack);
}

void NsaProgram::add_branches(Fragment& sum, const HeadViews& views, const Expr& first) const {
  const auto weight = [&](int branch) {
    const Tensor from = views.of_queries(*gates);
    Fragment result({c.rows()}, f32);
    if (c.pack == 1)
      copy(from.slice(all, branch).at(first), result);
    else
      copy(from.slice(all, all, branch).at(first), result.reshape({c.queries, c.pack}));
    parallel(result, [&](Index r) { result(r) = 1.f / (1.f + exp2(-result(r) * log2e)); });
    return result;
  };
  const Fragment own = weight(1);
  parallel(sum, [&](Index r, Index j) { sum(r, j) *= own(r); });
  const auto add = [&](const Tensor& branch, const Fragment& share) {
    const Tensor from = views.of_queries(branch);
    parallel(sum, [&](Index r, Index j) {
      Expr value = c.pack == 1 ? Expr(from(first + r, j)) : Expr(from(first + r / c.pack, r % c.pack, j));
      sum(r, j) += share(r) * value;
    });
  };
  add(*compressed, weight(0));
  if (window) add(*window, weight(2));
}

Kernel nsa_kernel(const NsaKernel& instance) {
  return kernel(instance_name("nsa", instance), [&] { NsaProgram(instance).run(); });
}

}  // namespace tegula::ops

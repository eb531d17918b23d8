// The pass over queries: dq, and the gradient of a scale for every selection.
#include "ops/nsa/backward_program.hpp"

namespace tegula::ops {

using namespace lang;

Selection NsaBackwardProgram::selection_of(const SequenceRows& rows, const Expr& kv_head,
                                           const Expr& selector) const {
  HeadViews of{rows, kv_head, Slot(selector)};
  Selection selection{of.of_queries(*choice), {}};
  if (f.counts) selection.counts.emplace(of.of_queries(*lengths));
  return selection;
}

ScoreGradient::Mask NsaBackwardProgram::key_mask(const BlockTile& tile, const TokenTile& tokens,
                                                 UnionList& chosen) const {
  std::optional<Expr> partial;
  if (!f.has_times() && !tile.row_of)
    partial.emplace(tile.ragged() || tile.first + f.keys > tokens.limit(Operand(0)));
  return {partial, [=, this, &chosen](const Expr& r, const Expr& t, const Expr& weight) {
            Expr token = r / f.pack, key = tile.row(t);
            Expr sees = tile.counts(key) && key < tokens.limit(token);
            if (!f.has_times()) return select(sees, weight, 0);
            Expr times = chosen.times(tile.slot(t), token);
            return select(sees && times > 0, f.repeats ? weight * f32(times) : weight, 0);
          }};
}

namespace {

// Adds the gradients of a step's scores, times the scores, up by block and token.
void add_scales(const NsaKernel& f, const BlockTile& tile, const Expr& count, const Fragment& scores,
                const Fragment& gradients, Shared& sums) {
  Shared products({f.rows(), f.keys}, f32);
  parallel(products, [&](Index r, Index t) { products(r, t) = scores(r, t) * gradients(r, t); });
  const int blocks = f.tiles().gathers() ? f.keys / f.block : 1, width = f.keys / blocks;
  parallel(f.queries, blocks, [&](Index token, Index i) {
    Var sum = 0.f;
    serial(f.pack, [&](Index head) {
      serial(width, [&](Index t) { sum += products(token * f.pack + head, i * width + t); });
    });
    Expr place = tile.slot(i * width);
    when(place < count, [&] { sums(place, token) += sum; });
  });
}

}  // namespace

namespace {

QueryGradient loaded(const GradientTiles& tiles, const ScoreGradient& gradient, const Tensor& q,
                     const Expr& first) {
  QueryGradient sums(tiles, gradient);
  sums.load(q, first);
  return sums;
}

}  // namespace

NsaBackwardProgram::QueryRows::QueryRows(const NsaBackwardProgram& p, const HeadViews& views,
                                         const Expr& first)
    : of(views),
      sums(loaded(p.c.query_tiles(), p.gradient(), views.of_queries(*p.q), first)),
      branch(p.c.query_tiles(), views.of_queries(*p.own.dout), views.vector(*p.own.base),
             views.vector(*p.own.delta), first) {}

void NsaBackwardProgram::query_block(const Index& x, const Index& h, const Index& b) {
  const bool whole_group = f.pack > 1 || c.in_turns();
  Expr kv_head = whole_group ? Expr(h) : h / *group, member = whole_group ? Expr(Operand(0)) : h % *group;
  HeadViews of{rows_of(b), kv_head, f.pack > 1 ? Slot(all) : Slot(member)};
  TokenTile tokens{f, x * f.queries, of.of_queries(*q).extent(0), of.of_keys(*k).extent(0)};
  assert_promise(b);
  if (f.varlen) exit_if(tokens.first >= tokens.count);
  std::optional<QueryRows> own_rows;
  if (!c.in_turns()) own_rows.emplace(*this, of, tokens.first);
  Expr selector = c.per_query_head ? member : Expr(Operand(0));
  Selection selection = selection_of(of.rows, kv_head, selector);
  UnionList chosen(tokens, selection);
  std::optional<Shared> scales;
  if (c.dscale) {
    scales.emplace(std::initializer_list<int>{f.queries * chosen.width(), f.queries}, f32);
    clear(*scales);
  }
  if (own_rows)
    meet_blocks(*own_rows, tokens, chosen, scales);
  else
    serial(*group, [&](Index turn) {
      QueryRows rows(*this, {of.rows, kv_head, Slot(turn)}, tokens.first);
      meet_blocks(rows, tokens, chosen, scales);
    });
  if (!c.dscale) return;
  HeadViews rows{of.rows, kv_head, Slot(selector)};
  write_dscale(tokens, selection, rows.of_queries(*dscale), chosen, *scales);
}

void NsaBackwardProgram::meet_blocks(QueryRows& rows, const TokenTile& tokens, UnionList& chosen,
                                     std::optional<Shared>& scales) const {
  Tensor k_of = rows.of.of_keys(*k), v_of = rows.of.of_keys(*v);
  walk_blocks(
      f.tiles(), [&](const Expr& n) { return chosen.block(n); }, chosen.count(),
      [&](const BlockTile& tile) {
        Shared k_tile({f.keys, f.dim}, f.compute), v_tile({f.keys, f.dim_v}, f.compute);
        tile.load(k_of, k_tile);
        tile.load(v_of, v_tile);
        QueryGradient::Observer observer;
        if (c.dscale)
          observer = [&](const Fragment& scores, const Fragment& gradients) {
            add_scales(f, tile, chosen.count(), scores, gradients, *scales);
          };
        rows.sums.add(rows.branch, k_tile, v_tile, key_mask(tile, tokens, chosen), observer);
      });
  if (c.window) add_window(rows.sums, rows.of, tokens);
  rows.sums.store(rows.of.of_queries(*dq), tokens.first);
}

void NsaBackwardProgram::add_window(QueryGradient& sums, const HeadViews& of, const TokenTile& tokens) const {
  QueryGradient::Branch branch(c.query_tiles(), of.of_queries(*beside.dout), of.vector(*beside.base),
                               of.vector(*beside.delta), tokens.first);
  Tensor k_of = of.of_keys(*k), v_of = of.of_keys(*v);
  ScoreRange visible(tokens.position(Operand(0)), f.queries, tokens.count - tokens.first, tokens.keys, *left,
                     Expr(Operand(0)));
  pipelined(visible.tiles(f.keys), {.stages = 2}, [&](Index j) {
    Shared k_tile({f.keys, f.dim}, f.compute), v_tile({f.keys, f.dim_v}, f.compute);
    copy(k_of.at(j * f.keys), k_tile);
    copy(v_of.at(j * f.keys), v_tile);
    sums.add(branch, k_tile, v_tile,
             {visible.is_partial(j * f.keys, f.keys), [&](const Expr& r, const Expr& t, const Expr& weight) {
                return select(visible.sees(r / f.pack, j * f.keys + t), weight, 0);
              }});
  });
}

// An entry that selects nothing, or what an earlier one of its token selects, has no part in the result; of
// entries that count repeatedly, each has an equal share.
void NsaBackwardProgram::write_dscale(const TokenTile& tokens, const Selection& selection, const Tensor& to,
                                      UnionList& chosen, Shared& sums) const {
  parallel(f.queries, f.entries, [&](Index token, Index e) {
    Expr row = tokens.first + token, entry = token * chosen.width() + e;
    when(row < tokens.count && e < selection.choice.extent(1), [&] {
      Var value = 0.f;
      Expr counts = f.repeats ? chosen.selects(entry) : chosen.selects(entry) && chosen.is_first(entry);
      when(counts, [&] {
        Expr sum = sums(chosen.place(entry), token) * gradient().factor();
        value = f.repeats ? sum / f32(chosen.times(chosen.place(entry), token)) : sum;
      });
      to(row, e) = value;
    });
  });
}

}  // namespace tegula::ops

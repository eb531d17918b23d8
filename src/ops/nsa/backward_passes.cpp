// The two passes of the gradients. Over queries: dq, and the gradient of a scale for every selection. Over
// keys: the lists inverted, dk and dv.
#include <memory>

#include "ops/nsa/backward_program.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

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
            Expr times = chosen.times(tile.place(t), token);
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
    Expr place = tile.place(i * width);
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
  const bool whole_group = f.pack > 1 || c.heads_one_by_one();
  Expr kv_head = whole_group ? Expr(h) : h / *group, member = whole_group ? Expr(Operand(0)) : h % *group;
  HeadViews of{rows_of(b), kv_head, f.pack > 1 ? Slot(all) : Slot(member)};
  TokenTile tokens{f.selected(), x * f.queries, of.of_queries(*q).extent(0), of.of_keys(*k).extent(0)};
  assert_promise(b);
  if (f.varlen) exit_if(tokens.first >= tokens.count);
  std::optional<QueryRows> own_rows;
  if (!c.heads_one_by_one()) own_rows.emplace(*this, of, tokens.first);
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

InverseLists NsaBackwardProgram::inverted_lists() const {
  const int rows = c.chunk;
  Expr width = entries + (f.diagonal ? 1 : 0);
  Expr fences = f.varlen ? q_begin->extent(0) : Expr(*batch);
  const InverseExtents extents{rows,
                               heads * selectors(),
                               sequences(),
                               f.varlen ? *longest_q : Expr(queries),
                               ceildiv(f.varlen ? *longest_k : Expr(keys), f.block),
                               f.varlen ? queries / rows + fences : *batch * ceildiv(queries, rows),
                               f.varlen ? keys / f.block + fences : *batch * ceildiv(keys, f.block),
                               f.varlen ? queries * width : *batch * queries * width};
  return {1, extents, [=, this](const Expr& h, const Expr& b) -> InversePart {
            SequenceRows of = rows_of(b);
            Expr q_first = f.varlen ? Expr(of.queries.begin) : b * queries;
            Expr count = of.queries.end - of.queries.begin, keys_of = of.keys.end - of.keys.begin;
            Expr blocks = ceildiv(keys_of, f.block);
            Selection selection = selection_of(of, h / selectors(), h % selectors());
            auto each = [=, this](const Expr& row, const InversePart::Visit& visit) {
              Expr position = row + keys_of - count;
              Expr last = f.causal ? floordiv(position, f.block) : blocks - 1;
              Expr length = selection.counts ? clamp((*selection.counts)(row), 0, entries) : Expr(entries);
              serial(length, [&](Index n) {
                Expr block = selection.choice(row, n);
                visit(select(block <= last, block, -1));
              });
              if (f.diagonal) visit(select(position >= 0, position / f.block, -1));
            };
            // Rounded down and one more for each sequence before: sequences do not meet.
            return {count,
                    blocks,
                    f.varlen ? of.queries.begin / rows + b : b * ceildiv(queries, rows),
                    f.varlen ? of.keys.begin / f.block + b : b * ceildiv(keys, f.block),
                    q_first * width,
                    each,
                    blocks};
          }};
}

MaskOfStep NsaBackwardProgram::query_mask(const Selection& selection, const Expr& first_key,
                                          const Expr& number, const Expr& shift) const {
  const bool always = f.repeats || c.queries > 1;
  return [=, this](const BlockTile& step) -> ScoreGradient::Mask {
    std::optional<Expr> partial;
    if (!always) partial.emplace(f.causal ? first_key + (c.keys - 1) > step.first + shift : Expr(false));
    auto sees = [=, this](const Expr& r, const Expr& query) {
      return f.causal ? step.counts(query) && first_key + r - shift <= query : step.counts(query);
    };
    if (!f.repeats)
      return {partial, [=, this](const Expr& r, const Expr& column, const Expr& weight) {
                return select(sees(r, step.row(column / f.pack)), weight, 0);
              }};
    auto times = std::make_shared<Shared>(std::initializer_list<int>{c.queries}, f32);
    parallel(*times, [&](Index n) {
      Expr query = step.row(n);
      Var sum = 0;
      when(step.counts(query), [&] {
        Expr length = selection.counts ? clamp((*selection.counts)(query), 0, entries) : Expr(entries);
        serial(length, [&](Index e) { sum += select(selection.choice(query, e) == number, 1, 0); });
        if (f.diagonal) sum += select((query + shift) / f.block == number && query + shift >= 0, 1, 0);
      });
      (*times)(n) = f32(sum);
    });
    return {partial, [=, this](const Expr& r, const Expr& column, const Expr& weight) {
              Expr query = column / f.pack;
              return select(sees(r, step.row(query)), weight * (*times)(query), 0);
            }};
  };
}

void NsaBackwardProgram::key_block(const Index& x, const Index& h, const Index& b) {
  const int tiles = ceildiv(f.block, c.keys);
  Expr number = tiles == 1 ? Expr(x) : x / tiles;
  Expr first = tiles == 1 ? number * f.block : number * f.block + x % tiles * c.keys;
  SequenceRows rows = rows_of(b);
  Expr keys_of = rows.keys.end - rows.keys.begin, count = rows.queries.end - rows.queries.begin;
  Expr end = min(number * f.block + f.block, keys_of), shift = keys_of - count;
  assert_promise(b);
  exit_if(first >= end);
  // No later row is read or written.
  HeadViews of_keys{rows.with_keys(end), h, all};
  KeyGradient sums(c.key_tiles(), gradient());
  sums.load(of_keys.of_keys(*k), of_keys.of_keys(*v), first);
  auto add_members = [&](const Slot& member, const Expr& selector) {
    HeadViews of{rows, h, member};
    InverseLists::List list = inverse->list(h * selectors() + selector, b, number);
    add_list(sums, c.key_tiles(), list, {1, c.queries},
             {of.of_queries(*q), of.of_queries(*own.dout), of.vector(*own.base), of.vector(*own.delta)},
             query_mask(selection_of(rows, h, selector), first, number, shift));
    if (c.window) add_window(sums, of, first, end, shift);
  };
  if (f.pack > 1)
    add_members(Slot(all), Expr(Operand(0)));
  else
    serial(*group, [&](Index member) {
      add_members(Slot(member), c.per_query_head ? Expr(member) : Expr(Operand(0)));
    });
  sums.store(of_keys.of_keys(*dk), of_keys.of_keys(*dv), first);
}

void NsaBackwardProgram::add_window(KeyGradient& sums, const HeadViews& of, const Expr& first,
                                    const Expr& end, const Expr& shift) const {
  Tensor q_of = of.of_queries(*q), dout_of = of.of_queries(*beside.dout);
  // Seen from a key, the window is the other way round.
  ScoreRange visible(first - shift, c.keys, end - first, q_of.extent(0), Expr(Operand(0)), *left);
  pipelined(visible.tiles(c.queries), {.stages = 2}, [&](Index j) {
    Expr row = j * c.queries;
    QueryTile tile(c.key_tiles());
    load_queries(q_of, row, tile.q, f.pack);
    load_queries(dout_of, row, tile.dout, f.pack);
    load_vector(of.vector(*beside.base), row, tile.base, f.pack);
    load_vector(of.vector(*beside.delta), row, tile.delta, f.pack);
    sums.add(tile.q, tile.dout, tile.base, tile.delta,
             {visible.is_partial(row, c.queries), [&](const Expr& r, const Expr& column, const Expr& weight) {
                return select(visible.sees(r, row + column / f.pack), weight, 0);
              }});
  });
}

}  // namespace tegula::ops

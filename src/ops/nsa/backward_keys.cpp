// The pass over keys: the lists turned round, dk and dv.
#include <memory>

#include "ops/nsa/backward_program.hpp"

namespace tegula::ops {

using namespace lang;

InverseLists NsaBackwardProgram::turned_lists() const {
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

#include "ops/block_sparse/backward_kernel.hpp"

#include "ops/block_sparse/backward_program.hpp"
#include "ops/block_sparse/own_queries.hpp"
#include "ops/lists/chosen_bits.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace sparse_backward {

void BackwardProgram::run() {
  inverse.emplace(inverted_lists());
  if (f.listed && !c.one_pass) sorted.emplace(sorted_lists());
  if (c.longest_first)
    longest_first.emplace(batch * heads, lists(),
                          [this](const Expr& n, const Expr& list) { return queries_of(n, list); });
  // Grids that need nothing of each other are neighbours: they run side by side.
  inverse->record_count();
  if (sorted) sorted->record_grid();
  inverse->record_begins();
  if (c.one_pass)
    delta_grid();
  else
    large_grid();  // the pass over queries forms delta
  if (longest_first) longest_first->record_grid();
  inverse->record_rows();
  if (!c.one_pass) query_grid();
  key_grid();
  Expr all_batches = sequences.all_batches();
  if (c.splits > 1)
    grid(ceildiv(sequences.keys, delta_rows), heads, all_batches,
         [&](Index x, Index h, Index b) { add_pieces(x, h, b); });
  if (c.one_pass)
    grid(ceildiv(sequences.queries, delta_rows), heads * members(), all_batches,
         [&](Index x, Index h, Index b) {
           HeadViews of = all_tokens(b, h / members(), Subscript(h % members()));
           finish_sum(of.vector(*sum), of.of_queries(*dq), x * delta_rows, f.dim, gradient().factor());
         });
}

void BackwardProgram::query_grid() {
  // Tiles that share a list run at the same time.
  const Order order = f.listed && f.pack == 1 && !c.per_query_head ? Order::grouped(*f.together) : Order{};
  const auto& blocks = sequences.listed_blocks;
  if (!blocks)
    return grid(q_tiles(), head_blocks(), batch, {.order = order}, [&](Index x, Index h, Index b) {
      // Under a causal mask later queries see more keys: they begin first. Heads of a group stay together, as
      // with Order::heavy_first they would not.
      query_block(f.causal ? q_tiles() - 1 - x : Expr(x), h, b, {});
    });
  Expr tiles = blocks->count() * f.splits();
  grid(tiles, head_blocks(), 1, {.order = order}, [&](Index x, Index h, Index) {
    Expr tile = f.causal ? tiles - 1 - x : Expr(x), number = f.splits() == 1 ? tile : tile / f.splits();
    const PackedTiles::Place place = blocks->place(number);
    query_block(f.splits() == 1 ? place.tile : place.tile * f.splits() + tile % f.splits(), h, place.sequence,
                number);
  });
}

void BackwardProgram::key_grid() {
  const int of_span = ceildiv(c.span(), c.keys) * c.splits;
  const auto& spans = sequences.listed_spans;
  if (!spans)
    return grid(lists() * of_span, heads, batch, [&](Index x, Index h, Index b) { key_block(x, h, b); });
  grid(spans->count() * of_span, heads, 1, [&](Index x, Index h, Index) {
    const PackedTiles::Place place = spans->place(of_span == 1 ? Expr(x) : x / of_span);
    key_block(of_span == 1 ? place.tile : place.tile * of_span + x % of_span, h, place.sequence);
  });
}

void BackwardProgram::delta_grid() {
  grid(ceildiv(sequences.queries, delta_rows), heads * members(), sequences.all_batches(),
       [&](Index x, Index h, Index b) {
         HeadViews of = all_tokens(b, h / members(), Subscript(h % members()));
         write_delta(rows_of(of, true), x * delta_rows);
       });
}

void BackwardProgram::large_grid() {
  grid(ceildiv(sequences.queries, delta_rows), heads * members(), sequences.all_batches(),
       [&](Index x, Index h, Index b) {
         HeadViews of = all_tokens(b, h / members(), Subscript(h % members()));
         large->note(of.vector(*lse), x * delta_rows);
         if (!f.varlen) vectors->clear_padding(of, h % members(), x * delta_rows);
       });
}

InverseLists BackwardProgram::inverted_lists() const {
  Expr rows = sequences.most_blocks(), chunks = ceildiv(rows, c.chunk),
       width = f.mask ? lists() : Expr(entries);
  const InverseExtents extents{c.chunk,
                               heads * selectors(),
                               batch,
                               rows,
                               lists(),
                               batch * chunks,
                               first_list(batch, sequences.keys),
                               batch * rows * width};
  return {c.fold, extents, [=, this](const Expr& h, const Expr& b) -> InverseOwner {
            auto each = [=, this](const Expr& row, const InverseOwner::Visit& visit) {
              ChoiceRow chosen = choice_row(b, h / selectors(), h % selectors(), row);
              Expr last = min(row * f.q_block + f.q_block, sequences.queries_of(b)) - 1 + sequences.shift(b);
              serial(f.mask ? Expr(entries) : chosen.entries, [&](Index n) {
                Expr block = f.mask ? select(chosen.row(n), n, -1) : Expr(chosen.row(n));
                visit(f.causal ? select(block <= floordiv(last, f.k_block), block, -1) : block);
              });
            };
            Expr begin = first_list(b, sequences.rows(b).keys.begin);
            return {sequences.blocks_of(b),
                    ceildiv(sequences.keys_of(b), c.span()),
                    b * chunks,
                    begin,
                    b * rows * width,
                    each,
                    ceildiv(sequences.keys_of(b), f.k_block)};
          }};
}

// Where the lists of a sequence begin, whose keys do at `key`.
Expr BackwardProgram::first_list(const Expr& b, const Expr& key) const {
  return f.varlen ? key / c.span() + b : b * lists();
}

// How many blocks of queries a tile of keys meets, of all heads that choose for themselves.
Expr BackwardProgram::queries_of(const Expr& head, const Expr& list) const {
  Expr b = head / heads, h = head % heads;
  if (!f.varlen && !c.per_query_head) return inverse->list(h, b, list).count;
  Var sum = 0;
  auto add = [&] {
    serial(selectors(), [&](Index member) { sum += inverse->list(h * selectors() + member, b, list).count; });
  };
  if (f.varlen)
    when(list * c.span() < sequences.keys_of(b), add);
  else
    add();
  return sum;
}

SortedLists BackwardProgram::sorted_lists() const {
  auto row_of = [this](const Expr& b, const Expr& h, const Expr& x) -> SortedLists::Row {
    Expr end = min(x * f.q_block + f.q_block, sequences.queries_of(b)) + sequences.shift(b);
    return {choice_row(b, h / selectors(), h % selectors(), x), sequences.blocks_met(b, x, end)};
  };
  if (!sequences.listed_blocks)
    return {batch, heads * selectors(), sequences.most_blocks(), entries, *f.listed, row_of};
  const auto of_number = [=, this](const Expr&, const Expr& h, const Expr& x) {
    const PackedTiles::Place place = sequences.listed_blocks->place(x);
    return row_of(place.sequence, h, place.tile);
  };
  return {Operand(1), heads * selectors(), sequences.listed_blocks->count(), entries, *f.listed, of_number};
}

void BackwardProgram::walk_choice(const ChoiceRow& chosen, const Expr& blocks,
                                  const std::function<void(const BlockTile&)>& body) const {
  serial(ceildiv(blocks, f.chunk), [&](Index n) {
    Shared list({f.chunk}, i32);
    Var count = 0;
    list_blocks(chosen, n * f.chunk, min(blocks, n * f.chunk + f.chunk), list, count);
    walk_blocks(
        {f.k_block, f.keys}, [&](const Expr& i) -> Expr { return list(i); }, count, body);
  });
}

void BackwardProgram::walk_sorted(
    const SortedLists::List& list, const Expr& b, const ScoreRange& visible,
    const std::function<void(const BlockTile&, const Expr& beyond)>& body) const {
  const TileOfBlocks shape{f.k_block, f.keys, true};
  const bool whole = !shape.gathers() && f.k_block % f.keys == 0;
  Expr sure = list.count - blocks_in_question(f.causal, f.q_block, f.k_block, sequences.queries_of(b),
                                              sequences.keys_of(b));
  walk_blocks(
      shape, [&](const Expr& i) -> Expr { return list.blocks(i); }, list.count,
      [&](const BlockTile& tile) { body(tile, whole ? *tile.entry >= sure : is_beyond(tile, visible)); });
}

// Lists ascend, so the last row has the largest key.
Expr BackwardProgram::is_beyond(const BlockTile& tile, const ScoreRange& visible) const {
  return tile.shape.gathers() ? tile.row(f.keys - 1) >= visible.limit(Operand(0))
                              : visible.is_partial(tile.first, f.keys);
}

ScoreGradient::Mask BackwardProgram::key_mask(const BlockTile& tile, const ScoreRange& visible,
                                              const Expr& beyond) const {
  return {tile.ragged() || beyond, [&](const Expr& r, const Expr& t, const Expr& weight) {
            Expr key = tile.row(t);
            return select(tile.counts(key) && key < visible.limit(r / f.pack), weight, 0);
          }};
}

void BackwardProgram::query_block(const Expr& x, const Index& h, const Expr& b,
                                  const std::optional<Expr>& number) {
  sequences.assert_promise(b);
  const OwnQueries own = own_queries(f, x, h, sequences.queries_of(b), group);
  HeadViews of{sequences.rows(b).with_queries(own.rows()), own.kv_head,
               f.pack > 1 ? Subscript(all) : Subscript(own.member)};
  Expr start = own.start(), zero = Expr(Operand(0));
  QueryGradient sums(c.query_tiles(), gradient(), of.of_queries(*q), start);
  QueryGradient::Branch branch(c.query_tiles(), rows_of(of), start);
  std::optional<Expr> right;
  if (f.causal) right.emplace(zero);
  ScoreRange visible(own.first + sequences.shift(b), f.queries, own.last - own.first, sequences.keys_of(b),
                     std::nullopt, right);
  Tensor k_of = of.of_keys(*k), v_of = of.of_keys(*v);
  auto add = [&](const BlockTile& tile, const Expr& beyond) {
    Shared k_tile({f.keys, f.dim}, f.compute), v_tile({f.keys, f.dim_v}, f.compute);
    tile.load(k_of, k_tile);
    tile.load(v_of, v_tile);
    sums.add(branch, k_tile, v_tile, key_mask(tile, visible, beyond));
  };
  Expr selector = c.per_query_head ? own.member : zero;
  if (f.listed)
    walk_sorted(
        sorted->list(number ? zero : b, own.kv_head * selectors() + selector, number ? *number : own.q_block),
        b, visible, add);
  else
    walk_choice(choice_row(b, own.kv_head, selector, own.q_block), ceildiv(visible.end(), f.k_block),
                [&](const BlockTile& tile) { add(tile, is_beyond(tile, visible)); });
  sums.store(of.of_queries(*dq), start);
}

MaskOfStep BackwardProgram::query_mask(const InverseLists::List& list, const Expr& first_key,
                                       const Expr& first_block, const Expr& shift) const {
  const bool folded = c.fold > 1, always = folded || c.steps_of_keys().gathers();
  return [=, this](const BlockTile& step) -> ScoreGradient::Mask {
    // The last key of the tile against the first query of the step.
    std::optional<Expr> partial;
    if (!always)
      partial.emplace(f.causal ? step.ragged() || first_key + (c.keys - 1) > step.first + shift
                               : step.ragged());
    auto sees = [=, this](const Expr& key, const Expr& query) {
      return f.causal ? step.counts(query) && key - shift <= query : step.counts(query);
    };
    if (!folded)
      return {partial, [=, this](const Expr& r, const Expr& column, const Expr& weight) {
                return select(sees(first_key + r, step.row(column / f.pack)), weight, 0);
              }};
    const ChosenBits chosen(list, step, c.fold);
    return {partial, [=, this](const Expr& r, const Expr& column, const Expr& weight) {
              Expr key = first_key + r, query = column / f.pack;
              Expr chose = chosen.has(query, key / f.k_block - first_block);
              return select(sees(key, step.row(query)) && chose, weight, 0);
            }};
  };
}

void BackwardProgram::key_block(const Expr& x, const Index& h, const Expr& b) {
  const int tiles = ceildiv(c.span(), c.keys);
  Expr tile = c.splits == 1 ? x : x / c.splits, split = x % c.splits;
  Expr rank = tiles == 1 ? tile : tile / tiles;
  Expr number = longest_first ? longest_first->list(b * heads + h, rank) : rank;
  Expr first = tiles == 1 ? number * c.span() : number * c.span() + tile % tiles * c.keys;
  Expr keys = sequences.keys_of(b);
  Expr end = c.span() % c.keys == 0 ? keys : min(number * c.span() + c.span(), keys);
  sequences.assert_promise(b);
  exit_if(first >= end);
  HeadViews keys_of{sequences.rows(b).with_keys(end), h, all};
  KeyGradient sums(c.key_tiles(), gradient());
  sums.load(keys_of.of_keys(*k), keys_of.of_keys(*v), first);
  auto add_members = [&](const Subscript& member, const Expr& selector) {
    HeadViews of{keys_of.rows, h, member};
    InverseLists::List list = split_of(inverse->list(h * selectors() + selector, b, number), split);
    add_list(sums, c.key_tiles(), list, c.steps_of_keys(),
             {of.of_queries(*q), of.of_queries(*dout), vectors->tiles(vectors->base, of),
              vectors->tiles(vectors->delta, of)},
             query_mask(list, first, number * c.fold, sequences.shift(b)),
             sum ? of.vector(*sum) : std::optional<Tensor>{});
  };
  if (f.pack > 1)
    add_members(Subscript(all), Expr(Operand(0)));
  else
    serial(*group, [&](Index member) {
      add_members(Subscript(member), c.per_query_head ? Expr(member) : Expr(Operand(0)));
    });
  if (c.splits > 1)
    sums.store_sums(keys_of.of_keys(split_dk->slice(split)), keys_of.of_keys(split_dv->slice(split)), first);
  else
    sums.store(keys_of.of_keys(*dk), keys_of.of_keys(*dv), first);
}

InverseLists::List BackwardProgram::split_of(const InverseLists::List& list, const Expr& split) const {
  if (c.splits == 1) return list;
  Expr most = ceildiv(list.count, c.splits), skipped = min(split * most, list.count);
  return {list.rows, list.bits, list.begin + skipped, min(list.count - skipped, most)};
}

void BackwardProgram::add_pieces(const Index& x, const Index& h, const Index& b) {
  const HeadViews of = all_tokens(b, h, all);
  auto add = [&](const Tensor& from, const Tensor& to, int features, bool scaled) {
    auto rows_of = [&](const Expr& split) -> Fragment {
      return load(of.of_keys(from.slice(split)).at(x * delta_rows), {delta_rows, features});
    };
    Fragment rows = rows_of(Operand(0));
    for (int split = 1; split < c.splits; ++split) {
      Fragment more = rows_of(Operand(split));
      parallel(rows, [&](Index i, Index j) { rows(i, j) += more(i, j); });
    }
    Expr factor = gradient().factor();
    if (scaled) parallel(rows, [&](Index i, Index j) { rows(i, j) *= factor; });
    copy(rows, of.of_keys(to).at(x * delta_rows));
  };
  add(*split_dk, *dk, f.dim, true);
  add(*split_dv, *dv, f.dim_v, false);
}

}  // namespace sparse_backward

Kernel block_sparse_backward_kernel(const BlockSparseBackwardKernel& instance) {
  return kernel(instance_name("block_sparse", instance),
                [&] { sparse_backward::BackwardProgram(instance).run(); });
}

}  // namespace tegula::ops

// What few tokens of a tile selected: pairs of a token and a block, sorted by blocks. A block of keys meets
// the tokens of its list, whose results go to slots; then every token adds its slots to what it has.
#include <algorithm>

#include "ops/attention/scores.hpp"
#include "ops/common/softmax.hpp"
#include "ops/nsa/program.hpp"
#include "ops/nsa/token_rows.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

// Of a list that one block of the grid works through.
constexpr int most_steps = 16, fewest_of_piece = 128;
constexpr int query_stages = 4, slot_stages = 4;

}  // namespace

void NsaProgram::declare_slots() {
  of_rest = c;
  of_rest.entries = lists->width(), of_rest.diagonal = false;
  pairs.emplace(
      of_rest, PairLists::Extents{heads, *batch * queries, *batch * chunks(), *batch, ceildiv(keys, c.block)},
      PairLists::Options{.longest = std::max(most_steps * c.queries, fewest_of_piece), .rest = true});
  const Extents of_slot{heads, *batch * queries * (pairs->width() + 1), c.parts(), c.members};
  slots.emplace(workspace("slots", joined(of_slot, {c.dim_v}), c.compute));
  slot_lse.emplace(workspace("slot_lse", of_slot, f32));
}

void NsaProgram::store_slots(const Fragment& tile, const Fragment& tile_lse, const Expr& head,
                             const Expr& first, const Expr& count, const Expr& part) const {
  const Tensor to = slots->slice(head, range(first, first + count), part),
               to_lse = slot_lse->slice(head, range(first, first + count), part);
  parallel(tile, [&](Index r, Index j) { to(r / c.pack, r % c.pack, j) = tile(r, j); });
  parallel(tile_lse, [&](Index r) { to_lse(r / c.pack, r % c.pack) = tile_lse(r); });
}

// A head after the other, so that its queries stay in the L2 cache; pieces first: they are the longest.
void NsaProgram::run_rest() {
  pair_grids();
  grid((pairs->pieces(queries) + ceildiv(keys, c.block)) * c.parts(), heads, *batch,
       [&](Index x, Index h, Index b) { key_block(x, h, b); });
  grid(tiles(), heads, *batch, [&](Index x, Index h, Index b) { merge_block(x, h, b); });
}

void NsaProgram::pair_grids() const {
  auto over_chunks = [&](auto body) {
    grid(chunks(), heads, *batch, {.threads = 256}, [&](Index x, Index h, Index b) {
      const Selection selection{lists->rest(h).slice(range(b * queries, b * queries + queries)), {}};
      body(part_of(h, b), TokenTile{of_rest, x * chunk_tokens, queries, keys, *behind}, selection);
    });
  };
  over_chunks([&](const auto&... all_of) { pairs->count(all_of...); });
  over_chunks([&](const auto&... all_of) { pairs->write(all_of...); });
}

// First pieces of long lists, then whole lists.
void NsaProgram::key_block(const Index& x, const Index& h, const Index& b) const {
  const int parts = c.parts();
  const PairLists::Part own_part = part_of(h, b);
  Expr of_pieces = pairs->pieces(queries) * parts, is_piece = x < of_pieces, piece = x / parts;
  Expr part = select(is_piece, x, x - of_pieces) % parts;
  const Var number = select(is_piece, pairs->block_of(own_part, piece), (x - of_pieces) / parts);
  exit_if(number < 0);
  const PairLists::List all_pairs = pairs->list(own_part, number);
  const PairLists::List cut = pairs->piece(all_pairs, piece - pairs->first_piece(own_part, number));
  Expr whole = select(pairs->is_cut(all_pairs), 0, all_pairs.count);
  const Var begin = select(is_piece, cut.begin, all_pairs.begin), count = select(is_piece, cut.count, whole);
  exit_if(count == 0);
  Expr first = number * c.block + part * c.keys, end = min(number * c.block + c.block, keys);
  Shared k_tile({c.keys, c.dim}, c.compute), v_tile({c.keys, c.dim_v}, c.compute);
  copy(k->slice(b, all, h).at(first), k_tile);
  copy(v->slice(b, all, h).at(first), v_tile);
  // Tokens ascend: the first sees least.
  Expr cut_off = first + c.keys > end, sees_all = all_pairs.tokens(begin) + shift() >= first + (c.keys - 1);
  const Var partial = c.causal ? cut_off || !sees_all : cut_off;
  const Tensor q_of = q->slice(b, all, h);
  pipelined(ceildiv(count, c.queries), {.stages = query_stages}, [&](Index t) {
    auto token = [&](const Expr& i) -> Expr {
      Expr n = t * c.queries + i;
      return select(n < count, all_pairs.tokens(begin + n), no_row);
    };
    Shared q_tile({c.rows(), c.dim}, c.compute);
    TokenRows(c.queries, c.pack, token).load(q_of, q_tile);
    Fragment scores({c.rows(), c.keys}, f32, 0);
    gemm(q_tile, k_tile.T(), scores);
    when(partial, [&] {
      parallel(scores, [&](Index r, Index j) {
        Expr key = first + j, n = min(t * c.queries + r / c.pack, count - 1);
        Expr sees = c.causal ? key < end && key - shift() <= all_pairs.tokens(begin + n) : key < end;
        scores(r, j) = select(sees, scores(r, j), -inf);
      });
    });
    OnlineSoftmax softmax(c.rows(), *scale);
    softmax.update(scores);
    Fragment sum({c.rows(), c.dim_v}, f32, 0);
    add_product(scores, v_tile, sum, c.compute);
    softmax.normalize(sum);
    store_slots(sum, softmax.lse(), h, begin + t * c.queries, count - t * c.queries, part);
  });
}

// By products with matrices that have weights on their diagonals, which tensor cores form as fast as slots
// arrive.
void NsaProgram::merge_block(const Index& x, const Index& h, const Index& b) const {
  const int rows = c.rows(), parts = c.parts(), most = pairs->width() * parts + 1;
  Expr first = x * c.queries, count = lists->most_rest(h, b * tiles() + x) * parts;
  exit_if(count == 0);
  // Behind the slots of a token's pairs stands that of its tile.
  auto place = [&](const Expr& token, const Expr& t) -> Expr {
    Expr row = first + token, pair = pairs->place(h, b * queries + row, t / parts);
    return select(row < queries, select(t < count, pair, select(t == count, own_slot(b, row), -1)), -1);
  };
  auto part = [&](const Expr& t) -> Expr { return select(t < count, t % parts, 0); };
  Shared weights({c.queries, most, c.pack}, f32);
  parallel(weights, [&](Index token, Index t, Index member) {
    Expr at = place(token, t), exists = at >= 0 && member < c.members;
    weights(token, t, member) = select(exists, (*slot_lse)(h, at, part(t), member), -inf);
  });
  Fragment total({rows}, f32);
  parallel(total, [&](Index r) {
    auto weight = [&](const Expr& t) { return weights(r / c.pack, t, r % c.pack); };
    Var top = -inf, sum = 0.f;
    serial(most, [&](Index t) { top = max(top, weight(t)); });
    Expr shift = select(top == -inf, 0, top);
    serial(most, [&](Index t) {
      Expr own = exp2((weight(t) - shift) * log2e);
      weight(t) = own;
      sum += own;
    });
    Expr factor = select(sum == 0, 0, rcp(sum));
    serial(most, [&](Index t) { weight(t) *= factor; });
    total(r) = select(sum == 0, -inf, shift + log2(sum) * ln2);
  });
  Fragment sum({rows, c.dim_v}, f32, 0);
  pipelined(count + 1, {.stages = slot_stages}, [&](Index t) {
    Shared tile({rows, c.dim_v}, c.compute);
    gather(
        slots->slice(h, all, part(t)), [&](Index i) -> Expr { return place(i, t); },
        tile.reshape({c.queries, c.pack, c.dim_v}));
    Fragment diagonal({rows, rows}, f32);
    parallel(diagonal, [&](Index i, Index j) {
      diagonal(i, j) = select(i == j, weights(i / c.pack, t, i % c.pack), 0);
    });
    add_product(diagonal, tile, sum, c.compute);
  });
  store_rows(sum, out->slice(b, all, h), first, c.pack);
  store_lse(total, lse->slice(b, h), first, c.pack);
}

}  // namespace tegula::ops

// The pass over inverted lists.
#include <algorithm>
#include <utility>

#include "ops/lists/pair_lists.hpp"
#include "ops/nsa/kernel.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/token_rows.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Limits for the piece of a list that one block of the grid processes.
constexpr int most_inverted_steps = 16, fewest_of_inverted_piece = 128;
constexpr int query_stages = 4, partial_stages = 4;

// Tokens that one warp group takes: what tiles of several leave is not shared by so many.
NsaKernel of_one_group(const NsaKernel& forward) {
  NsaKernel result = forward;
  result.queries /= forward.row_groups();
  return result;
}

class InvertedProgram {
 public:
  explicit InvertedProgram(const NsaKernel& instance);
  void run();

 private:
  Expr shift() const { return keys - queries - *behind; }
  Expr blocks() const { return ceildiv(keys, c.block); }
  Expr tiles() const { return ceildiv(queries, c.queries); }
  // The number of row groups in all tiles of a batch entry in the forward.
  Expr groups() const { return ceildiv(*all_tokens, tile_tokens) * (tile_tokens / c.queries); }
  Expr first_row(const Expr& b) const { return b * *all_tokens + *segment * *segment_tokens; }
  PairLists::Owner owner_of(const Expr& head, const Expr& b) const {
    return {head, b * *segments + *segment, Expr(Operand(0)), first_row(b), blocks()};
  }
  // The partial of a pair, by its position among all pairs of the head.
  Expr partial_of(const Expr& b, const Expr& place) const {
    return place - (first_row(b) - b * queries) * pairs->width();
  }
  // Stores the partials of the rows of a tile, which are among the `count` partials from `first` on.
  void store_partials(const Fragment& tile, const Fragment& tile_lse, const Expr& head, const Expr& first,
                      const Expr& count, const Expr& block_tile) const;
  void key_block(const Index& x, const Index& h, const Index& b) const;
  // What is added up in a row has a weight relative to the largest of the row.
  Expr weight(Shared& weights, const Expr& r, const Expr& t) const {
    return weights(r / c.pack, t, r % c.pack);
  }
  // The factors with which the weights of a row add up to 1.
  struct Total {
    Fragment lse;
    Shared factor;
  };
  Total weigh(Shared& weights) const;
  void merge_block(const Index& x, const Index& h, const Index& b) const;

  const NsaKernel c, lists;
  const int tile_tokens;  // of the forward
  Dim batch{"batch"}, queries{"tokens"}, keys{"keys"}, heads{"kv_heads"};
  std::optional<Tensor> q, k, v, tile_out, tile_lse, out, lse, most_left_out, most_of_segment, partials,
      partial_lse;
  std::optional<Expr> scale, behind, segment, segments, segment_tokens, all_tokens;
  std::optional<PairLists> pairs;
};

InvertedProgram::InvertedProgram(const NsaKernel& instance)
    : c(of_one_group(instance)), lists(lists_left_out(instance)), tile_tokens(instance.queries) {
  const Extents of_q{batch, queries, heads, c.members}, of_k{batch, keys, heads};
  q.emplace(input("q", joined(of_q, {c.dim}), c.type));
  k.emplace(input("k", joined(of_k, {c.dim}), c.type));
  v.emplace(input("v", joined(of_k, {c.dim_v}), c.type));
  const Extents of_out = joined(of_q, {c.dim_v}), of_lse{batch, heads, c.members, queries};
  tile_out.emplace(input("tile_out", of_out, c.type));
  tile_lse.emplace(input("tile_lse", of_lse, f32));
  out.emplace(output("out", of_out, c.type));
  lse.emplace(output("lse", of_lse, f32));
  // A block reads its rows before it writes them.
  may_alias(*tile_out, *out);
  may_alias(*tile_lse, *lse);
  scale.emplace(scalar("scale", f32));
  behind.emplace(scalar("behind", i32));
  segment.emplace(scalar("part", i32));
  segments.emplace(scalar("parts", i32));
  segment_tokens.emplace(scalar("part_tokens", i32));
  all_tokens.emplace(scalar("all_tokens", i32));
  most_of_segment.emplace(input("most_of_part", {*segments}, i32));
  most_left_out.emplace(input("most_rest", {heads, batch * groups()}, i32));
  pairs.emplace(
      lists.selected(),
      PairLists::Extents{heads, batch * *all_tokens, Expr(Operand(0)), batch * *segments, blocks()},
      PairLists::Options{.longest = longest_inverted(c), .left_out = true, .role = PairLists::Role::inputs});
  const Extents of_partial{heads, batch * queries * pairs->width(), c.tiles_of_block(), c.members};
  partials.emplace(workspace("slots", joined(of_partial, {c.dim_v}), c.compute));
  partial_lse.emplace(workspace("slot_lse", of_partial, f32));
}

void InvertedProgram::store_partials(const Fragment& tile, const Fragment& tile_lse, const Expr& head,
                                     const Expr& first, const Expr& count, const Expr& block_tile) const {
  const Tensor to = partials->slice(head, range(first, first + count), block_tile),
               to_lse = partial_lse->slice(head, range(first, first + count), block_tile);
  parallel(tile, [&](Index r, Index j) { to(r / c.pack, r % c.pack, j) = tile(r, j); });
  parallel(tile_lse, [&](Index r) { to_lse(r / c.pack, r % c.pack) = tile_lse(r); });
}

// A head after the other, so that its queries stay in the L2 cache; pieces first: they are the longest.
void InvertedProgram::run() {
  grid((pairs->pieces(queries, blocks()) + blocks()) * c.tiles_of_block(), heads, batch,
       [&](Index x, Index h, Index b) { key_block(x, h, b); });
  grid(tiles(), heads, batch, [&](Index x, Index h, Index b) { merge_block(x, h, b); });
}

// First pieces of long lists, then whole lists.
void InvertedProgram::key_block(const Index& x, const Index& h, const Index& b) const {
  exit_if((*most_of_segment)(*segment) == 0);
  const int block_tiles = c.tiles_of_block();
  const PairLists::Owner owner = owner_of(h, b);
  Expr of_pieces = pairs->pieces(queries, blocks()) * block_tiles, is_piece = x < of_pieces,
       piece = x / block_tiles;
  Expr block_tile = select(is_piece, x, x - of_pieces) % block_tiles;
  const Var number = select(is_piece, pairs->block_of(owner, piece), (x - of_pieces) / block_tiles);
  exit_if(number < 0);
  const PairLists::List all_pairs = pairs->list(owner, number);
  const PairLists::List cut = pairs->piece(all_pairs, piece - pairs->first_piece(owner, number));
  Expr whole = select(pairs->is_cut(all_pairs), 0, all_pairs.count);
  const Var begin = select(is_piece, cut.begin, all_pairs.begin), count = select(is_piece, cut.count, whole);
  exit_if(count == 0);
  Expr first = number * c.block + block_tile * c.keys, end = min(number * c.block + c.block, keys);
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
    const Fragment own_lse = softmax.lse();  // while the product runs
    softmax.normalize(sum);
    store_partials(sum, own_lse, h, partial_of(b, begin) + t * c.queries, count - t * c.queries, block_tile);
  });
}

// Turns the lse of what rows add up, [tokens, numbers, heads], into weights.
InvertedProgram::Total InvertedProgram::weigh(Shared& weights) const {
  const auto most = static_cast<int>(weights.extent(1));
  Shared top({c.rows()}, f32), factor({c.rows()}, f32);
  parallel(c.rows(), [&](Index r) {
    Var own = -inf;
    serial(most, [&](Index t) { own = max(own, weight(weights, r, t)); });
    top(r) = select(own == -inf, 0, own);
  });
  parallel(weights, [&](Index token, Index t, Index member) {
    weights(token, t, member) = exp2((weights(token, t, member) - top(token * c.pack + member)) * log2e);
  });
  Fragment lse_of_all({c.rows()}, f32);
  parallel(lse_of_all, [&](Index r) {
    Var sum = 0.f;
    serial(most, [&](Index t) { sum += weight(weights, r, t); });
    factor(r) = select(sum == 0, 0, rcp(sum));
    lse_of_all(r) = select(sum == 0, -inf, top(r) + log2(sum) * ln2);
  });
  return {std::move(lse_of_all), std::move(factor)};
}

// Uses products with diagonal matrices of weights, which tensor cores compute as fast as partials arrive.
void InvertedProgram::merge_block(const Index& x, const Index& h, const Index& b) const {
  exit_if((*most_of_segment)(*segment) == 0);
  const int rows = c.rows(), block_tiles = c.tiles_of_block(), most = pairs->width() * block_tiles + 1;
  // Chunks that left nothing have no places, and end with a warp group's tokens, but inside a tile.
  Expr first = x * c.queries, group = b * groups() + (*segment * *segment_tokens + first) / c.queries;
  Expr count = (*most_left_out)(h, group) * block_tiles;
  exit_if(count == 0);
  Shared places({c.queries, pairs->width()}, i32);
  parallel(places, [&](Index token, Index entry) {
    Expr row = first + token;
    places(token, entry) = select(row < queries, pairs->place(h, first_row(b) + row, entry), -1);
  });
  auto partial = [&](const Expr& token, const Expr& t) -> Expr {
    Expr place = places(token, t / block_tiles);
    return select(t < count && place >= 0, partial_of(b, place), -1);
  };
  // The partials of a token's pairs are followed by the result of its tile.
  Shared weights({c.queries, most, c.pack}, f32);
  parallel(weights, [&](Index token, Index t, Index member) {
    Expr at = partial(token, t), of_pair = at >= 0 && member < c.members;
    Expr of_tile = t == count && first + token < queries && member < c.members;
    weights(token, t, member) = select(of_pair, (*partial_lse)(h, at, t % block_tiles, member),
                                       select(of_tile, (*tile_lse)(b, h, member, first + token), -inf));
  });
  const Total total = weigh(weights);
  Shared own_tile({rows, c.dim_v}, c.compute);
  load_queries(tile_out->slice(b, all, h), first, own_tile, c.pack);
  Fragment sum({rows, c.dim_v}, f32, 0);
  auto add_weighted = [&](const Shared& tile_of, const Expr& t) {
    Fragment diagonal({rows, rows}, f32);
    parallel(diagonal, [&](Index i, Index j) { diagonal(i, j) = select(i == j, weight(weights, i, t), 0); });
    add_product(diagonal, tile_of, sum, c.compute);
  };
  add_weighted(own_tile, count);
  pipelined(count, {.stages = partial_stages}, [&](Index t) {
    Shared partial_tile({rows, c.dim_v}, c.compute);
    gather(
        partials->slice(h, all, t % block_tiles), [&](Index i) -> Expr { return partial(i, t); },
        partial_tile.reshape({c.queries, c.pack, c.dim_v}));
    add_weighted(partial_tile, t);
  });
  parallel(sum, [&](Index i, Index j) { sum(i, j) *= total.factor(i); });
  store_rows(sum, out->slice(b, all, h), first, c.pack);
  store_lse(total.lse, lse->slice(b, h), first, c.pack);
}

}  // namespace

NsaKernel lists_left_out(const NsaKernel& forward) {
  NsaKernel lists = forward;
  lists.entries = forward.width(), lists.diagonal = false;
  return lists;
}

int longest_inverted(const NsaKernel& forward) {
  return std::max(most_inverted_steps * of_one_group(forward).queries, fewest_of_inverted_piece);
}

Kernel nsa_inverted_kernel(const NsaInvertedKernel& instance) {
  return kernel(instance_name("nsa", instance) + "_rest", [&] { InvertedProgram(instance.forward).run(); });
}

}  // namespace tegula::ops

#include <algorithm>
#include <bit>
#include <optional>

#include "ops/lists/pair_lists.hpp"
#include "ops/nsa/backward.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/token_rows.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Limits for the piece of a list that one block of the grid processes.
constexpr int most_steps = 64, fewest_of_piece = 128;
constexpr int sum_stages = 4;
constexpr int fewest_stats = 32, fewest_copied_stats = 4;  // of a token: for the copy engine, for threads

class OnePassProgram {
 public:
  explicit OnePassProgram(const NsaOnePassKernel& instance);
  void run();

 private:
  ScoreGradient gradient() const { return {*scale, std::nullopt, *large}; }
  // What a call has of a sequence: packed ones share the only batch entry, and may begin before the call or
  // end behind it.
  struct Sequence {
    bool packed;
    Expr number, b, first_row, count, first_key, keys, behind;
    Expr shift() const { return keys - count - behind; }
    Subscript rows() const {
      return packed ? Subscript(range(first_row, first_row + count)) : Subscript(all);
    }
    Range own_keys(const Expr& end) const {
      return packed ? range(first_key, first_key + end) : range(0, end);
    }
  };
  Sequence sequence(const Expr& number) const;
  Expr sequences() const { return f.varlen ? q_begin->extent(0) - 1 : Expr(batch); }
  Expr most_keys() const { return f.varlen ? *longest_k : Expr(keys); }
  Expr most_queries() const { return f.varlen ? min(*longest_q, queries) : Expr(queries); }
  PairLists::Owner owner_of(const Expr& head, const Sequence& s) const {
    Expr first_chunk = f.varlen ? s.first_row / f.chunk + s.number : s.number * chunks();
    return {head, s.number, first_chunk, f.varlen ? s.first_row : s.b * queries, ceildiv(s.keys, f.block)};
  }
  void declare_options(const Extents& of_q, const Extents& vector, const Extents& of_k);

  void delta_grid();
  void pair_grids();
  void key_block(const Index& x, const Index& h, const Sequence& s);
  // A tile of keys.
  struct KeyTile {
    Sequence sequence;
    Expr h, number, block_tile, first, end;
  };
  KeyTile key_tile(const Expr& number, const Expr& block_tile, const Expr& h, const Sequence& s) const {
    Expr first = number * f.block + block_tile * c.keys;
    return {s, h, number, block_tile, first, min(number * f.block + f.block, s.keys)};
  }
  Expr chunks() const { return ceildiv(most_queries(), f.chunk); }
  Expr pieces() const { return pairs->pieces(most_queries(), ceildiv(most_keys(), f.block)); }
  int stats_width() const {
    return std::max(2 * f.pack, TokenRows::by_copy_engine(f.pack) ? fewest_stats : fewest_copied_stats);
  }
  int longest() const { return std::max(most_steps * c.queries, fewest_of_piece); }
  void find_first_seeing(const PairLists::List& list, const KeyTile& of, Shared& first) const;
  void add_list(KeyGradient& sums, const PairLists::List& list, const KeyTile& of);
  void merge_block(const Index& x, const Index& h, const Sequence& s);
  void sum_block(const Index& x, const Index& h, const Index& b);
  void round_block(const Index& x, const Index& h, const Index& b);
  Tensor query_rows(const Tensor& from, const Expr& h, const Expr& b) const {
    return f.pack > 1 ? from.slice(b, all, h) : from.slice(b, all, h, 0);
  }

  const NsaOnePassKernel& c;
  const NsaKernel& f;
  Dim batch{"batch"}, queries{"tokens"}, keys{"keys"}, heads{"kv_heads"}, entries{"entries"};
  std::optional<Tensor> dout, q, k, v, out, lse, dq, dk, dv, choice, lengths, dlse, stats, partials, dk_sum,
      dv_sum, piece_dk, piece_dv, plus_dq, plus_dk, plus_dv, q_begin, k_begin;
  std::optional<Expr> scale, outside, is_first, is_last, longest_q, longest_k;
  std::optional<PairLists> pairs;
  std::optional<LargeScores> large;
};

OnePassProgram::OnePassProgram(const NsaOnePassKernel& instance) : c(instance), f(c.forward) {
  const Extents of_q{batch, queries, heads, f.members}, of_k{batch, keys, heads},
      vector{batch, heads, f.members, queries};
  dout.emplace(input("dout", joined(of_q, {f.dim_v}), f.type));
  q.emplace(input("q", joined(of_q, {f.dim}), f.type));
  k.emplace(input("k", joined(of_k, {f.dim}), f.type));
  v.emplace(input("v", joined(of_k, {f.dim_v}), f.type));
  out.emplace(input("out", joined(of_q, {f.dim_v}), f.type));
  lse.emplace(input("lse", vector, f32));
  dq.emplace(output("dq", joined(of_q, {f.dim}), f.type));
  dk.emplace(output("dk", joined(of_k, {f.dim}), f.type));
  dv.emplace(output("dv", joined(of_k, {f.dim_v}), f.type));
  choice.emplace(input("choice", {batch, queries, heads, 1, entries}, i32));
  scale.emplace(scalar("scale", f32));
  outside.emplace(scalar(f.varlen ? "before" : "behind", i32));
  require(entries <= f.entries, "a row has no more entries than the instance");
  declare_options(of_q, vector, of_k);
  stats.emplace(
      workspace("stats", {batch, queries, heads, stats_width()}, f32, {.zero = f.members < f.pack}));
  large.emplace();
  pairs.emplace(f.selected(),
                PairLists::Extents{heads, batch * queries,
                                   f.varlen ? queries / f.chunk + sequences() : batch * chunks(), sequences(),
                                   ceildiv(most_keys(), f.block)},
                PairLists::Options{longest()});
  Expr all_pieces = PairLists::all_pieces(batch * queries, sequences(), pairs->width(), longest());
  const Extents of_piece{heads, all_pieces * c.tiles_of_block(), c.keys};
  piece_dk.emplace(workspace("piece_dk", joined(of_piece, {f.dim}), f32));
  piece_dv.emplace(workspace("piece_dv", joined(of_piece, {f.dim_v}), f32));
  partials.emplace(workspace(
      "slots", {heads, batch * queries * pairs->width(), c.tiles_of_block(), f.members, f.dim}, f.compute));
}

void OnePassProgram::declare_options(const Extents& of_q, const Extents& vector, const Extents& of_k) {
  if (f.counts) lengths.emplace(input("counts", {batch, queries, heads, 1}, i32));
  if (c.dlse) dlse.emplace(input("dlse", vector, f32));
  if (c.plus) {
    plus_dq.emplace(input("plus_dq", joined(of_q, {f.dim}), f.type));
    plus_dk.emplace(input("plus_dk", joined(of_k, {f.dim}), f.type));
    plus_dv.emplace(input("plus_dv", joined(of_k, {f.dim_v}), f.type));
  }
  dk_sum.emplace(inout("dk_sum", joined(of_k, {f.dim}), f32));
  dv_sum.emplace(inout("dv_sum", joined(of_k, {f.dim_v}), f32));
  is_first.emplace(scalar("is_first", boolean));
  is_last.emplace(scalar("is_last", boolean));
  if (!f.varlen) return;
  require(batch == 1, "packed sequences are one entry of a batch");
  Dim fences("fences");
  q_begin.emplace(input("q_begin", {fences}, i32));
  k_begin.emplace(input("k_begin", {fences}, i32));
  longest_q.emplace(scalar("longest_q", i32));
  longest_k.emplace(scalar("longest_k", i32));
}

// No longer than promised, so that all grids count the same tokens.
OnePassProgram::Sequence OnePassProgram::sequence(const Expr& number) const {
  Expr zero = Operand(0);
  if (!f.varlen) return {false, number, number, zero, queries, zero, keys, *outside};
  Expr first = (*q_begin)(number), begin = clamp(first - *outside, 0, queries),
       last = min((*q_begin)(number + 1), first + *longest_q) - *outside, end = clamp(last, 0, queries),
       first_key = (*k_begin)(number), own_keys = min((*k_begin)(number + 1) - first_key, *longest_k);
  return {true, number, zero, begin, end - begin, first_key, own_keys, last - end};
}

void OnePassProgram::run() {
  pair_grids();
  delta_grid();  // beside the second of these
  const Expr tiles = ceildiv(most_keys(), f.block) * c.tiles_of_block();
  // A head after the other, so that its queries stay in the L2 cache; pieces first: they are the longest.
  grid(pieces() * c.tiles_of_block() + tiles, heads, sequences(),
       [&](Index x, Index h, Index s) { key_block(x, h, sequence(s)); });
  grid(tiles, heads, sequences(), [&](Index x, Index h, Index s) { merge_block(x, h, sequence(s)); });
  grid(ceildiv(queries, c.queries), heads, batch, [&](Index x, Index h, Index b) { sum_block(x, h, b); });
  grid(ceildiv(keys, delta_rows), heads, batch, [&](Index x, Index h, Index b) { round_block(x, h, b); });
}

void OnePassProgram::delta_grid() {
  grid(ceildiv(queries, delta_rows), heads * f.members, batch, [&](Index x, Index h, Index b) {
    Expr kv_head = h / f.members, member = h % f.members;
    auto tokens = [&](const Tensor& t) { return t.slice(b, all, kv_head, member); };
    auto vector = [&](const Tensor& t) { return t.slice(b, kv_head, member); };
    auto stat = [&](const Expr& column) { return stats->slice(b, all, kv_head, column); };
    HeadRows rows{tokens(*dout), tokens(*out), vector(*lse), stat(f.pack + member),
                  stat(member),  {},           f.dim_v,      *large};
    if (dlse) rows.dlse.emplace(vector(*dlse));
    write_delta(rows, x * delta_rows);
  });
}

void OnePassProgram::pair_grids() {
  auto over_chunks = [&](auto body) {
    grid(chunks(), heads, sequences(), {.threads = 256}, [&](Index x, Index h, Index number) {
      const Sequence s = sequence(number);
      // The first chunk says of a sequence without tokens that it has no pairs.
      if (f.varlen) exit_if(x > 0 && x * f.chunk >= s.count);
      Selection selection{choice->slice(s.b, s.rows(), h, 0), {}};
      if (lengths) selection.counts.emplace(lengths->slice(s.b, s.rows(), h, 0));
      body(owner_of(h, s), TokenTile{f.selected(), x * f.chunk, s.count, s.keys, s.behind}, selection);
    });
  };
  over_chunks([&](const auto&... all_of) { pairs->count(all_of...); });
  over_chunks([&](const auto&... all_of) { pairs->write(all_of...); });
}

// For every key of the tile, the first pair of the list whose token sees it: by bisection.
void OnePassProgram::find_first_seeing(const PairLists::List& list, const KeyTile& of, Shared& first) const {
  parallel(first, [&](Index r) {
    Expr token = of.first + r - of.sequence.shift();
    Var low = 0, high = list.count;
    serial(std::bit_width(static_cast<unsigned>(longest())), [&](Index) {
      when(low < high, [&] {
        Expr middle = (low + high) / 2, sees = list.tokens(list.begin + middle) >= token;
        low = select(sees, low, middle + 1);
        high = select(sees, middle, high);
      });
    });
    first(r) = low;
  });
}

// The pairs of a list, a tile of tokens at a time. Tokens and heads that do not exist have
// zeros for rows, and so add nothing.
void OnePassProgram::add_list(KeyGradient& sums, const PairLists::List& list, const KeyTile& of) {
  const Expr count = list.count;
  const Sequence& s = of.sequence;
  const Tensor q_of = q->slice(s.b, s.rows(), of.h), dout_of = dout->slice(s.b, s.rows(), of.h),
               stats_of = stats->slice(s.b, s.rows(), of.h);
  const Tensor own_partials = partials->slice(of.h, range(list.begin, list.begin + count), of.block_tile);
  // Tokens ascend: the first sees least.
  Expr cut = of.first + c.keys > of.end, lowest = select(count > 0, list.tokens(list.begin), 0),
       sees_all = lowest + s.shift() >= of.first + (c.keys - 1);
  // With repeats every step asks what a pair counts.
  const Var partial = f.repeats ? Expr(Operand(true)) : f.causal ? cut || !sees_all : cut;
  Shared first_seeing({c.keys}, i32);
  if (f.causal) when(partial, [&] { find_first_seeing(list, of, first_seeing); });
  pipelined(ceildiv(count, c.queries), {.stages = 2}, [&](Index t) {
    auto token = [&](const Expr& i) -> Expr {
      Expr n = t * c.queries + i;
      return select(n < count, list.tokens(list.begin + n), no_row);
    };
    Shared q_tile({f.pack * c.queries, f.dim}, f.compute),
        dout_tile({f.pack * c.queries, f.dim_v}, f.compute), stats_tile({c.queries, stats_width()}, f32);
    const TokenRows rows(c.queries, f.pack, token);
    rows.load(q_of, q_tile);
    rows.load(stats_of, stats_tile);
    rows.load(dout_of, dout_tile);
    std::optional<Shared> times;
    if (list.times) {
      times.emplace(Shared({c.queries}, f32));
      parallel(*times, [&](Index n) {
        Expr at = t * c.queries + n;
        (*times)(n) = select(at < count, f32((*list.times)(list.begin + at)), 0);
      });
    }
    sums.add(
        q_tile, dout_tile,
        [&](const Expr& column) -> Expr { return stats_tile(column / f.pack, column % f.pack); },
        [&](const Expr& column) -> Expr { return stats_tile(column / f.pack, f.pack + column % f.pack); },
        {Expr(partial),
         [&](const Expr& r, const Expr& column, const Expr& weight) {
           Expr key = of.first + r, token = column / f.pack;
           Expr own = times ? weight * (*times)(token) : weight;
           if (!f.causal) return select(key < of.end, own, 0);
           return select(key < of.end && t * c.queries + token >= first_seeing(r), own, 0);
         }},
        [&](const Fragment& contribution) {
          parallel(contribution, [&](Index r, Index j) {
            own_partials(t * c.queries + r / f.pack, r % f.pack, j) = contribution(r, j);
          });
        });
  });
}

// First pieces of long lists, then whole lists.
void OnePassProgram::key_block(const Index& x, const Index& h, const Sequence& s) {
  const int block_tiles = c.tiles_of_block();
  const PairLists::Owner owner = owner_of(h, s);
  Expr of_pieces = pieces() * block_tiles, is_piece = x < of_pieces, piece = x / block_tiles;
  Expr exists = f.varlen ? is_piece && piece < pairs->pieces(s.count, owner.blocks) : is_piece;
  Expr other = f.varlen ? select(is_piece, -1, (x - of_pieces) / block_tiles) : (x - of_pieces) / block_tiles;
  const Var number = select(exists, pairs->block_of(owner, piece), other);
  exit_if(f.varlen ? number < 0 || number >= owner.blocks : number < 0);
  const KeyTile of = key_tile(number, select(is_piece, x, x - of_pieces) % block_tiles, h, s);
  const PairLists::List list = pairs->list(owner, number);
  const PairLists::List cut = pairs->piece(list, piece - pairs->first_piece(owner, number));
  exit_if(!is_piece && !*is_first && (pairs->is_cut(list) || list.count == 0));
  // A tile after the last key leaves zeros in its partials.
  const Range own = s.own_keys(of.end);
  const Subscript loaded =
      f.block % c.keys == 0 ? f.varlen ? Subscript(s.own_keys(s.keys)) : Subscript(all) : Subscript(own);
  KeyGradient sums(c.tiles(), gradient());
  sums.load(k->slice(s.b, loaded, h), v->slice(s.b, loaded, h), of.first);
  const Tensor dk_of = dk_sum->slice(s.b, own, h), dv_of = dv_sum->slice(s.b, own, h);
  when(!is_piece && !*is_first, [&] { sums.load_sums(dk_of, dv_of, of.first); });
  Expr whole = select(pairs->is_cut(list), 0, list.count);
  const Var begin = select(is_piece, cut.begin, list.begin), count = select(is_piece, cut.count, whole);
  add_list(sums, {list.tokens, begin, count, list.times}, of);
  when(is_piece, [&] {
    Expr at = pairs->begin_of_pieces(owner) * block_tiles + x;
    sums.store_sums(piece_dk->slice(h, at), piece_dv->slice(h, at), Operand(0));
  }).otherwise([&] { sums.store_sums(dk_of, dv_of, of.first); });
}

// Adds the sums of pieces.
void OnePassProgram::merge_block(const Index& x, const Index& h, const Sequence& s) {
  const int block_tiles = c.tiles_of_block();
  const PairLists::Owner owner = owner_of(h, s);
  const KeyTile of = key_tile(x / block_tiles, x % block_tiles, h, s);
  if (f.varlen) {
    assert_queries((*q_begin)(s.number + 1) - (*q_begin)(s.number), *longest_q);
    assert_keys((*k_begin)(s.number + 1) - (*k_begin)(s.number), *longest_k);
    exit_if(of.number >= owner.blocks);
  }
  const PairLists::List list = pairs->list(owner, of.number);
  exit_if(!pairs->is_cut(list));
  Expr first = pairs->begin_of_pieces(owner) + pairs->first_piece(owner, of.number);
  auto merge = [&](const Tensor& from, const Tensor& to, int features) {
    Tensor window = to.slice(s.b, s.own_keys(of.end), h);
    Fragment sum = load(window.at(of.first), {c.keys, features});
    serial(pairs->pieces_of(list), [&](Index n) {
      Tensor own = from.slice(h, (first + n) * block_tiles + of.block_tile);
      parallel(sum, [&](Index i, Index j) { sum(i, j) += own(i, j); });
    });
    copy(sum, window.at(of.first));
  };
  merge(*piece_dk, *dk_sum, f.dim);
  merge(*piece_dv, *dv_sum, f.dim_v);
}

// The last call rounds the sums.
void OnePassProgram::round_block(const Index& x, const Index& h, const Index& b) {
  exit_if(!*is_last);
  Expr factor = gradient().factor();
  auto round = [&](const Tensor& from, const std::optional<Tensor>& plus, const Tensor& to, int features,
                   bool scaled) {
    Fragment rows = load(from.slice(b, all, h).at(x * delta_rows), {delta_rows, features});
    if (scaled) parallel(rows, [&](Index i, Index j) { rows(i, j) *= factor; });
    if (plus) {
      Fragment more = load(plus->slice(b, all, h).at(x * delta_rows), {delta_rows, features});
      parallel(rows, [&](Index i, Index j) { rows(i, j) += more(i, j); });
    }
    copy(rows, to.slice(b, all, h).at(x * delta_rows));
  };
  round(*dk_sum, plus_dk, *dk, f.dim, true);
  round(*dv_sum, plus_dv, *dv, f.dim_v, false);
}

// Uses products with the identity, which tensor cores add up as fast as partials arrive.
void OnePassProgram::sum_block(const Index& x, const Index& h, const Index& b) {
  const int rows = c.queries * f.pack, block_tiles = c.tiles_of_block();
  Expr first = x * c.queries;
  Fragment sum({rows, f.dim}, f32, 0), identity({rows, rows}, f32);
  parallel(identity, [&](Index i, Index j) { identity(i, j) = select(i == j, 1.f, 0.f); });
  auto add = [&](const Fragment& one) {
    pipelined(pairs->width() * block_tiles, {.stages = sum_stages}, [&](Index t) {
      Expr entry = block_tiles == 1 ? Expr(t) : t / block_tiles,
           block_tile = block_tiles == 1 ? Expr(Operand(0)) : t % block_tiles;
      Shared tile({rows, f.dim}, f.compute);
      auto place = [&](Index i) -> Expr {
        Expr row = first + i;
        return select(row < queries, pairs->place(h, b * queries + row, entry), -1);
      };
      if (f.pack == 1)
        gather(partials->slice(h, all, block_tile, 0), place, tile);
      else
        gather(partials->slice(h, all, block_tile), place, tile.reshape({c.queries, f.pack, f.dim}));
      gemm(one, tile, sum);
    });
  };
  if (f.compute == f32)
    add(identity);
  else
    add(identity.to(f.compute));
  Expr factor = gradient().factor();
  parallel(sum, [&](Index r, Index j) { sum(r, j) *= factor; });
  if (plus_dq) {
    const Tensor more = query_rows(*plus_dq, h, b);
    parallel(sum, [&](Index r, Index j) {
      if (f.pack > 1)
        sum(r, j) += more(first + r / f.pack, r % f.pack, j);
      else
        sum(r, j) += more(first + r, j);
    });
  }
  store_rows(sum, query_rows(*dq, h, b), first, f.pack);
}

}  // namespace

Kernel nsa_one_pass_kernel(const NsaOnePassKernel& instance) {
  return kernel(instance_name("nsa", instance), [&] { OnePassProgram(instance).run(); });
}

}  // namespace tegula::ops

#include "ops/latent/sparse_mla_backward_kernel.hpp"

#include <algorithm>
#include <vector>

#include "ops/latent/rows.hpp"
#include "ops/pieces/gradient.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/split_sums.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int piece =
    128;  // features whose sums for listed rows are in registers beside those of the queries
constexpr int word_bits = 32;  // queries that share a word
constexpr int pairs_of_step = 8, entries_of_block = 256;
constexpr int warp = 32, least_adding_threads = 64;
constexpr int rows_of_two_splits = 16;                 // whose parts a block adds
constexpr int rows_of_few = 32, features_of_few = 64;  // that a block adds at a time, of few queries

// A range of the features of a row.
struct Piece {
  int begin, size, tile;
  bool is_value;
};

std::vector<Piece> pieces_of(const SparseMlaKernel& c) {
  std::vector<Piece> pieces;
  const auto tile = [&](int size) { return tile_features(size, size, c.compute).of(size); };
  for (int begin = 0; begin < c.dim_v; begin += piece) {
    const int size = std::min(piece, c.dim_v - begin);
    pieces.push_back({begin, size, tile(size), true});
  }
  if (c.rest() > 0) pieces.push_back({c.dim_v, c.rest(), tile(c.rest()), false});
  return pieces;
}

// Where a feature is in the row of a pair, and which feature is there: those that a thread of a product has,
// two of every eight, follow one another.
Expr exchanged_place(const Expr& d) {
  constexpr int all = exchanged_features;
  return d / all * all + d % 8 / 2 * 8 + d % all / 8 * 2 + d % 2;
}

struct MlaBackwardProgram {
  const SparseMlaBackwardKernel& instance;
  const SparseMlaKernel& c = instance.forward;
  const std::vector<Piece> pieces = pieces_of(c);
  Dim queries{"queries"}, keys{"keys"}, kv_heads{"kv_heads"}, group{"group"}, entries{"entries"};
  LatentTensor q = LatentTensor::input("q", {queries, kv_heads, group}, c.dim, c.dim_v, c.type);
  LatentTensor kv = LatentTensor::input("kv", {keys, kv_heads}, c.dim, c.dim_v, c.type);
  Tensor indices = input("indices", {queries, kv_heads, entries}, i32);
  Tensor dout = input("dout", {queries, kv_heads, group, c.dim_v}, c.type);
  Tensor out = input("out", {queries, kv_heads, group, c.dim_v}, c.type);
  Tensor lse = input("lse", {queries, kv_heads, group}, f32);
  Tensor delta = output("delta", {queries, kv_heads, group}, f32);
  Tensor dq = instance.adds ? inout("dq", {queries, kv_heads, group, c.dim}, c.type)
                            : output("dq", {queries, kv_heads, group, c.dim}, c.type);
  Tensor sums = inout("sums", {keys, kv_heads, c.dim}, f32);
  Tensor dkv = output("dkv", {keys, kv_heads, c.dim}, c.type);
  Expr scale = scalar("scale", f32), is_first = scalar("is_first", i32), is_last = scalar("is_last", i32);
  std::optional<Expr> offset;
  std::optional<Tensor> counts, dlse;
  const int blocks = instance.blocks;
  Expr padded = ceildiv(entries, c.keys) * c.keys;
  Tensor base = workspace("base", {queries, kv_heads, group}, f32);
  // For a row and a query: `entries` minus the first entry that lists the row.
  Tensor marks = workspace("marks", {kv_heads, keys, instance.tokens}, i32, {.zero = true});
  // The lists, in which a row stands once, and else -1; and how often it counts.
  Tensor rows = workspace("rows", {queries, kv_heads, padded}, i32);
  Tensor times = workspace("times", {queries, kv_heads, padded}, f32, {.zero = true});
  // What the parts of a list add to the gradients of queries.
  std::optional<Tensor> shares;
  // What pairs add to their rows.
  Tensor partials = workspace("parts", {kv_heads, queries* padded* blocks, c.dim}, c.type);
  LargeScores large;

  explicit MlaBackwardProgram(const SparseMlaBackwardKernel& of) : instance(of) {
    require(ceildiv(group, c.rows) == blocks, "the heads of a group fill the blocks of the instance");
    if (c.causal) offset.emplace(scalar("offset", i32));
    if (c.counts) counts.emplace(input("counts", {queries, kv_heads}, i32));
    if (instance.splits > 1)
      shares.emplace(workspace("shares", {instance.splits, queries, kv_heads, group, c.dim}, f32));
    if (instance.dlse) dlse.emplace(input("dlse", {queries, kv_heads, group}, f32));
  }

  void run() {
    write_deltas();
    mark();
    write_lists();
    const int splits = instance.splits, of_query = blocks * splits;
    grid(queries * of_query, kv_heads, {.threads = c.rows == 64 && c.dim_v > most_undivided ? 256 : 0},
         [&](Index x, Index h) { block(x / of_query, h, x % of_query / splits, x % splits); });
    if (shares) add_shares();
    if (instance.few)
      add_few_pairs();
    else
      add_pairs();
  }
  void write_deltas();
  void mark();
  void write_lists();
  void block(const Expr& query, const Expr& h, const Expr& heads_block, const Expr& split);
  void add_shares();
  void add_shares_of_rows(int rows);
  void add_few_pairs();
  void add_pairs();
  void add_pairs_of(const Index& key, const Index& h);
  Expr list_pairs(const Shared& own, Shared& listed) const;

  Expr count(const Expr& query, const Expr& h) const {
    return counts ? clamp((*counts)(query, h), 0, entries) : Expr(entries);
  }
  // One past the last row that a query sees.
  Expr last(const Expr& query) const { return offset ? min(keys, query + *offset + 1) : Expr(keys); }
  Expr place(const Expr& feature) const { return instance.exchanged ? exchanged_place(feature) : feature; }
  // The features of a piece of [.., values] and [.., rest].
  static Tensor columns(const LatentTensor& of, const Piece& p) {
    const Tensor& heads_block = p.is_value ? of.values : *of.rest;
    return heads_block.slice(all, range(p.is_value ? p.begin : 0, (p.is_value ? p.begin : 0) + p.size));
  }
};

void MlaBackwardProgram::write_deltas() {
  grid(ceildiv(queries, delta_rows), group, kv_heads, [&](Index x, Index member, Index h) {
    const auto own = [&](const Tensor& of) { return of.slice(all, h, member); };
    HeadRows rows{own(dout), own(out), own(lse), own(delta), own(base), {}, c.dim_v, large};
    if (dlse) rows.dlse.emplace(own(*dlse));
    write_delta(rows, x * delta_rows);
  });
}

void MlaBackwardProgram::mark() {
  grid(ceildiv(entries, entries_of_block), queries, kv_heads, [&](Index x, Index query, Index h) {
    Expr end = last(query), first = x * entries_of_block;
    parallel(min(count(query, h) - first, entries_of_block), [&](Index i) {
      Expr n = first + i, row = indices(query, h, n);
      when(row >= 0 && row < end, [&] { atomic_max(marks(h, row, query), entries - n); });
    });
  });
}

void MlaBackwardProgram::write_lists() {
  grid(ceildiv(padded, entries_of_block), queries, kv_heads, [&](Index x, Index query, Index h) {
    Expr end = last(query), own_count = count(query, h), first = x * entries_of_block;
    parallel(min(padded - first, entries_of_block), [&](Index i) {
      Expr n = first + i;
      Var row = -1;
      when(n < own_count, [&] {
        Expr listed = indices(query, h, n);
        when(listed >= 0 && listed < end, [&] {
          const Var first_entry = entries - marks(h, listed, query);
          when(first_entry == n, [&] { row = listed; });
          atomic_add(times(query, h, first_entry), 1.0f);  // exact in any order
        });
      });
      rows(query, h, n) = row;
    });
  });
}

// The heads of a block: pieces of their queries and of their outputs' gradients, and the sums.
struct Heads {
  const MlaBackwardProgram& p;
  const SparseMlaKernel& c;
  Expr query, h, heads_block, split, row;
  std::vector<Shared> q, dout;
  std::vector<Fragment> dq;
  Fragment base, delta;

  Heads(const MlaBackwardProgram& program, const Expr& own_query, const Expr& head, const Expr& block,
        const Expr& part)
      : p(program),
        c(p.c),
        query(own_query),
        h(head),
        heads_block(block),
        split(part),
        row(block * c.rows),
        base({c.rows}, f32),
        delta({c.rows}, f32) {
    const LatentTensor of = p.q.slice(query, h);
    for (const Piece& own : p.pieces) {
      q.emplace_back(std::initializer_list<int>{c.rows, own.tile}, c.compute);
      copy(MlaBackwardProgram::columns(of, own).at(row), q.back());
      dq.emplace_back(std::initializer_list<int>{c.rows, own.tile}, f32, 0);
      if (!own.is_value) continue;
      dout.emplace_back(std::initializer_list<int>{c.rows, own.tile}, c.compute);
      copy(p.dout.slice(query, h, all, range(own.begin, own.begin + own.size)).at(row), dout.back());
    }
    copy(p.base.slice(query, h).at(row), base);
    copy(p.delta.slice(query, h).at(row), delta);
  }
  void step(const Expr& j);
  void store();
};

void Heads::step(const Expr& j) {
  Shared rows({c.keys}, i32), times({c.keys}, f32);
  Shared weights({c.rows, c.keys}, c.compute), gradients({c.rows, c.keys}, c.compute);
  copy(p.rows.slice(query, h).at(j * c.keys), rows);
  copy(p.times.slice(query, h).at(j * c.keys), times);
  const LatentTensor kv = p.kv.slice(all, h);
  std::vector<Shared> k;
  for (const Piece& own : p.pieces) {
    k.emplace_back(std::initializer_list<int>{c.keys, own.tile}, c.compute);
    gather(MlaBackwardProgram::columns(kv, own), rows, k.back());
  }
  Fragment s({c.rows, c.keys}, f32, 0), ds({c.rows, c.keys}, f32, 0);
  for (std::size_t i = 0; i < k.size(); ++i) {
    gemm(q[i], k[i].T(), s);
    if (i < dout.size()) gemm(dout[i], k[i].T(), ds);
  }
  parallel(s, [&](Index i, Index n) {
    // An lse that rounding made too small would have weights above 1.
    s(i, n) = select(times(n) > 0, min(exp2(s(i, n) * p.scale - base(i)), 1) * times(n), 0);
    ds(i, n) = s(i, n) * (ds(i, n) - delta(i)) * (p.scale * ln2);
  });
  copy(s, weights);
  copy(ds, gradients);
  Expr first = (query * p.padded + j * c.keys) * p.blocks + heads_block;
  for (std::size_t i = 0; i < k.size(); ++i) {
    const Piece& own = p.pieces[i];
    Fragment added({c.keys, own.tile}, f32, 0);
    gemm(gradients.T(), q[i], added);
    if (own.is_value) gemm(weights.T(), dout[i], added);
    gemm(gradients, k[i], dq[i]);
    Tensor to = p.partials.slice(h, all, range(own.begin, own.begin + own.size));
    parallel(added, [&](Index n, Index d) { to(first + n * p.blocks, p.place(d)) = added(n, d); });
  }
}

void Heads::store() {
  for (std::size_t i = 0; i < dq.size(); ++i) {
    const Piece& own = p.pieces[i];
    const auto features = range(own.begin, own.begin + own.size);
    Tensor to =
        p.shares ? p.shares->slice(split, query, h, all, features) : p.dq.slice(query, h, all, features);
    if (p.instance.adds && !p.shares)
      parallel(dq[i], [&](Index m, Index d) { dq[i](m, d) += f32(to(row + m, d)); });
    parallel(dq[i], [&](Index m, Index d) { to(row + m, d) = dq[i](m, d); });
  }
}

void MlaBackwardProgram::block(const Expr& query, const Expr& h, const Expr& heads_block, const Expr& split) {
  Heads own(*this, query, h, heads_block, split);
  Expr steps = ceildiv(count(query, h), c.keys);
  if (!shares) {
    pipelined(steps, {.stages = 1}, [&](Index j) { own.step(j); });
  } else {
    Expr each = ceildiv(steps, instance.splits), first = split * each;
    pipelined(clamp(steps - first, 0, each), {.stages = 1}, [&](Index j) { own.step(first + j); });
  }
  own.store();
}

// Many parts of one row are under way together; of few parts a block adds some rows.
void MlaBackwardProgram::add_shares() {
  const int rows = rows_of_two_splits * 4 / (instance.splits * instance.splits);
  if (rows > 1) return add_shares_of_rows(rows);
  grid(queries * group, ceildiv(c.dim, features_of_few), kv_heads, [&](Index x, Index chunk, Index h) {
    Expr query = x / group, member = x % group, first = chunk * features_of_few;
    Fragment parts =
        load(shares->slice(all, query, h, member).at(0, first), {instance.splits, features_of_few});
    Fragment sum = reduce_sum(parts, 0);
    Tensor to = dq.slice(query, h, member);
    if (instance.adds) parallel(sum, [&](Index d) { sum(d) += f32(to(first + d)); });
    copy(sum, to.at(first));
  });
}

void MlaBackwardProgram::add_shares_of_rows(int rows) {
  Expr blocks_of_query = ceildiv(group, rows);
  grid(queries * blocks_of_query, ceildiv(c.dim, features_of_few), kv_heads,
       [&](Index x, Index chunk, Index h) {
         Expr query = x / blocks_of_query, row = x % blocks_of_query * rows, first = chunk * features_of_few;
         Fragment sum({rows, features_of_few}, f32, 0);
         add_splits(sum, instance.splits,
                    [&](int split) { return shares->slice(split, query, h).at(row, first); });
         Tensor to = dq.slice(query, h);
         if (instance.adds)
           parallel(sum, [&](Index m, Index d) { sum(m, d) += f32(to(row + m, first + d)); });
         copy(sum, to.at(row, first));
       });
}

// Every row has a block, whose threads have two features each.
void MlaBackwardProgram::add_pairs() {
  const int threads = std::max((c.dim / 2 + warp - 1) / warp * warp, least_adding_threads);
  grid(keys, kv_heads, {.threads = threads}, [&](Index key, Index h) { add_pairs_of(key, h); });
}

// The pairs of the queries that name a row, in their order, and how many there are.
Expr MlaBackwardProgram::list_pairs(const Shared& own, Shared& listed) const {
  const int words = (instance.tokens + word_bits - 1) / word_bits;
  Shared bits({words}, u32), before({words + 1}, i32);
  clear(bits);
  parallel(own, [&](Index query) {
    when(own(query) != 0, [&] { atomic_or(bits(query / word_bits), u32(1) << u32(query % word_bits)); });
  });
  parallel(before, [&](Index word) {
    Var sum = 0;
    serial(word, [&](Index n) { sum += i32(popcount(bits(n))); });
    before(word) = sum;
  });
  parallel(own, [&](Index query) {
    when(own(query) != 0, [&] {
      Expr earlier = bits(query / word_bits) & ((u32(1) << u32(query % word_bits)) - 1u);
      listed(before(query / word_bits) + i32(popcount(earlier))) = query * padded + entries - own(query);
    });
  });
  return before(words);
}

void MlaBackwardProgram::add_pairs_of(const Index& key, const Index& h) {
  Shared own({instance.tokens}, i32), listed({instance.tokens}, i32);
  copy(marks.slice(h, key).at(0), own);
  const Var pairs = list_pairs(own, listed) * blocks;
  Fragment sum({c.dim}, f32, 0);
  Tensor to = sums.slice(key, h);
  when(is_first == 0, [&] {
    if (instance.exchanged)
      parallel(sum, [&](Index i) { sum(i) = to(exchanged_place(i)); });
    else
      copy(to.at(0), sum);
  });
  pipelined(ceildiv(pairs, pairs_of_step), {.stages = 4}, [&](Index step) {
    Shared tile({pairs_of_step, c.dim}, c.type);
    const auto pair = [&](const Expr& i) -> Expr {
      Expr n = step * pairs_of_step + i;
      return select(n < pairs, listed(min(n, pairs - 1) / blocks) * blocks + n % blocks, -1);
    };
    gather(partials.slice(h), pair, tile);
    for (int i = 0; i < pairs_of_step; ++i) parallel(sum, [&](Index d) { sum(d) += f32(tile(i, d)); });
  });
  const auto store = [&](const Tensor& row) {
    if (instance.exchanged)
      parallel(sum, [&](Index i) { row(exchanged_place(i)) = sum(i); });
    else
      copy(sum, row.at(0));
  };
  when(is_last != 0, [&] { store(dkv.slice(key, h)); }).otherwise([&] { store(to); });
}

// Most rows are only written, so that rows share a block.
void MlaBackwardProgram::add_few_pairs() {
  grid(ceildiv(keys, rows_of_few), kv_heads, [&](Index x, Index h) {
    Expr row = x * rows_of_few;
    Shared pairs({few_queries, rows_of_few}, i32);
    parallel(pairs, [&](Index query, Index r) {
      const Var mark = Expr(marks(h, row + r, query));
      pairs(query, r) = select(query < queries && mark != 0, (query * padded + entries - mark) * blocks, -1);
    });
    serial(ceildiv(c.dim, features_of_few), [&](Index chunk) {
      Expr first = chunk * features_of_few;
      Fragment sum({rows_of_few, features_of_few}, f32, 0);
      when(is_first == 0, [&] { copy(sums.slice(all, h).at(row, first), sum); });
      serial(queries, [&](Index query) {
        for (int block = 0; block < blocks; ++block)
          parallel(sum, [&](Index r, Index d) {
            Expr pair = pairs(query, r);
            when(pair >= 0, [&] { sum(r, d) += f32(partials(h, pair + block, place(first + d))); });
          });
      });
      when(is_last != 0, [&] { copy(sum, dkv.slice(all, h).at(row, first)); }).otherwise([&] {
        copy(sum, sums.slice(all, h).at(row, first));
      });
    });
  });
}

}  // namespace

Kernel sparse_mla_backward_kernel(const SparseMlaBackwardKernel& c) {
  return kernel(instance_name("sparse_mla_backward", c), [&] { MlaBackwardProgram(c).run(); });
}

}  // namespace tegula::ops

#include "ops/latent/sparse_mla_pairs_kernel.hpp"

#include <algorithm>

#include "ops/pieces/gradient.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int word_bits = 32;  // queries that share a word
constexpr int pairs_of_step = 8, entries_of_block = 256;
constexpr int warp = 32, least_adding_threads = 64;

struct ListsProgram {
  const SparseMlaBackwardKernel& instance;
  const SparseMlaKernel& c = instance.forward;
  Dim queries{"queries"}, keys{"keys"}, kv_heads{"kv_heads"}, group{"group"}, entries{"entries"},
      padded{"padded"};
  Tensor indices = input("indices", {queries, kv_heads, entries}, i32);
  Tensor dout = input("dout", {queries, kv_heads, group, c.dim_v}, c.type);
  Tensor out = input("out", {queries, kv_heads, group, c.dim_v}, c.type);
  Tensor lse = input("lse", {queries, kv_heads, group}, f32);
  Tensor delta = output("delta", {queries, kv_heads, group}, f32);
  Tensor base = output("base", {queries, kv_heads, group}, f32);
  // For a row and a query: `entries` minus the first entry that lists the row.
  Tensor marks = output("marks", {kv_heads, keys, instance.tokens}, i32);
  // The lists, in which a row stands once, and else -1; and how often it counts.
  Tensor rows = output("rows", {queries, kv_heads, padded}, i32);
  Tensor times = output("times", {queries, kv_heads, padded}, f32);
  std::optional<Expr> offset;
  std::optional<Tensor> counts, dlse;
  LargeScores large;

  explicit ListsProgram(const SparseMlaBackwardKernel& of) : instance(of) {
    if (c.causal) offset.emplace(scalar("offset", i32));
    if (c.counts) counts.emplace(input("counts", {queries, kv_heads}, i32));
    if (instance.dlse) dlse.emplace(input("dlse", {queries, kv_heads, group}, f32));
  }

  void run() {
    write_deltas();
    clear_marks();
    mark();
    write_lists();
  }
  void write_deltas();
  void clear_marks();
  void mark();
  void write_lists();

  Expr count(const Expr& query, const Expr& h) const {
    return counts ? clamp((*counts)(query, h), 0, entries) : Expr(entries);
  }
  // One past the last row that a query sees.
  Expr last(const Expr& query) const { return offset ? min(keys, query + *offset + 1) : Expr(keys); }
};

void ListsProgram::write_deltas() {
  grid(ceildiv(queries, delta_rows), group, kv_heads, [&](Index x, Index member, Index h) {
    const auto own = [&](const Tensor& of) { return of.slice(all, h, member); };
    HeadRows rows{own(dout), own(out), own(lse), own(delta), own(base), {}, c.dim_v, large};
    if (dlse) rows.dlse.emplace(own(*dlse));
    write_delta(rows, x * delta_rows);
  });
}

void ListsProgram::clear_marks() {
  constexpr int keys_of_block = 16;
  grid(ceildiv(keys, keys_of_block), kv_heads, [&](Index x, Index h) {
    Fragment none({keys_of_block, instance.tokens}, i32, 0);
    copy(none, marks.slice(h).at(x * keys_of_block));
  });
}

void ListsProgram::mark() {
  grid(ceildiv(padded, entries_of_block), queries, kv_heads, [&](Index x, Index query, Index h) {
    Expr end = last(query), own_count = count(query, h), first = x * entries_of_block;
    parallel(min(padded - first, entries_of_block), [&](Index i) {
      Expr n = first + i;
      times(query, h, n) = 0;
      when(n < own_count, [&] {
        Expr row = indices(query, h, n);
        when(row >= 0 && row < end, [&] { atomic_max(marks(h, row, query), entries - n); });
      });
    });
  });
}

void ListsProgram::write_lists() {
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

struct SumsProgram {
  const SparseMlaBackwardKernel& instance;
  const SparseMlaKernel& c = instance.forward;
  const int blocks = instance.blocks;
  Dim keys{"keys"}, kv_heads{"kv_heads"}, pairs{"pairs"};
  Tensor marks = input("marks", {kv_heads, keys, instance.tokens}, i32);
  Tensor parts = input("parts", {kv_heads, pairs, c.dim}, c.type);
  Tensor sums = inout("sums", {keys, kv_heads, c.dim}, f32);
  Tensor dkv = output("dkv", {keys, kv_heads, c.dim}, c.type);
  Expr entries = scalar("entries", i32), is_first = scalar("is_first", i32), is_last = scalar("is_last", i32);

  void run();
  void add_pairs_of(const Index& key, const Index& h);
  Expr list_pairs(const Shared& own, Shared& listed) const;
};

// Every row has a block, whose threads have two features each.
void SumsProgram::run() {
  const int threads = std::max((c.dim / 2 + warp - 1) / warp * warp, least_adding_threads);
  grid(keys, kv_heads, {.threads = threads}, [&](Index key, Index h) { add_pairs_of(key, h); });
}

// The pairs of the queries that name a row, in their order, and how many there are.
Expr SumsProgram::list_pairs(const Shared& own, Shared& listed) const {
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
      listed(before(query / word_bits) + i32(popcount(earlier))) =
          query * (ceildiv(entries, c.keys) * c.keys) + entries - own(query);
    });
  });
  return before(words);
}

void SumsProgram::add_pairs_of(const Index& key, const Index& h) {
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
    gather(parts.slice(h), pair, tile);
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

constexpr int rows_of_sum = 1024;  // of a step of the sum over queries

}  // namespace

Expr exchanged_place(const Expr& d) {
  constexpr int all = exchanged_features;
  return d / all * all + d % 8 / 2 * 8 + d % all / 8 * 2 + d % 2;
}

Kernel sparse_mla_lists_kernel(const SparseMlaBackwardKernel& c) {
  return kernel(instance_name("sparse_mla_lists", c), [&] { ListsProgram(c).run(); });
}

Kernel sparse_mla_sums_kernel(const SparseMlaBackwardKernel& c) {
  return kernel(instance_name("sparse_mla_sums", c), [&] { SumsProgram{c}.run(); });
}

// A sink's share of a row's sum is exp(sink − lse), and its gradient −share · delta.
Kernel sink_gradient_kernel(const SinkGradientKernel& c) {
  return kernel(instance_name("sparse_mla_sink_gradient", c), [&] {
    Dim batch("batch"), queries("queries"), kv_heads("kv_heads"), group("group");
    Tensor lse = input("lse", {batch, queries, kv_heads, group}, f32);
    Tensor delta = input("delta", {batch, queries, kv_heads, group}, f32);
    Tensor sinks = input("sinks", {kv_heads, group}, c.type),
           dsinks = output("dsinks", {kv_heads, group}, f32);
    grid(group, kv_heads, [&](Index member, Index h) {
      Expr sink = f32(sinks(h, member));
      Fragment sums({rows_of_sum}, f32, 0);
      serial(batch, [&](Index b) {
        serial(ceildiv(queries, rows_of_sum), [&](Index n) {
          Expr first = n * rows_of_sum;
          Fragment row_lse = load(lse.slice(b, all, h, member).at(first), {rows_of_sum}),
                   row_delta = load(delta.slice(b, all, h, member).at(first), {rows_of_sum});
          parallel(sums, [&](Index i) {
            Expr share = select(sink == inf, 1, exp2((sink - row_lse(i)) * log2e));
            Expr counts = first + i < queries && sink != -inf;
            sums(i) -= select(counts, share * row_delta(i), 0);
          });
        });
      });
      dsinks(h, member) = reduce_sum(sums).scalar();
    });
  });
}

}  // namespace tegula::ops

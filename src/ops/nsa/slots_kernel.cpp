#include "ops/nsa/slots_kernel.hpp"

#include <fmt/format.h>

#include <optional>

#include "ops/attention/scores.hpp"
#include "ops/attention/views.hpp"
#include "ops/block_sparse/key_pass.hpp"
#include "ops/nsa/pair_lists.hpp"

namespace tegula::ops {

using namespace lang;

std::string NsaSlotsKernel::name() const {
  return fmt::format("{}_slots_q{}_k{}{}", forward.name(), queries, keys, dlse ? "_dlse" : "");
}

namespace {

class Program {
 public:
  explicit Program(const NsaSlotsKernel& instance);
  void run();

 private:
  ScoreGradient gradient() const { return {*scale, std::nullopt}; }
  Expr shift() const { return keys - queries - *behind; }
  TokenTile tokens_from(const Expr& first) const { return {f, first, queries, keys, *behind}; }
  PairLists::Chunk chunk_of(const Expr& number, const Expr& head, const Expr& b) const {
    return {head, b * ceildiv(queries, chunk_tokens) + number, b * queries + number * chunk_tokens,
            ceildiv(keys, f.block)};
  }
  void declare_options(const Extents& vector, const Extents& of_k);

  void delta_grid();
  void pair_grid();
  void key_block(const Index& x, const Index& h, const Index& b);
  void add_list(KeyGradient& sums, const PairLists::List& list, const Expr& b, const Expr& h,
                const Expr& first, const Expr& end, const Tensor& slots_of);
  void sum_block(const Index& x, const Index& h, const Index& b);
  void round_block(const Index& x, const Index& h, const Index& b);

  const NsaSlotsKernel& c;
  const NsaKernel& f;
  Dim batch{"batch"}, queries{"tokens"}, keys{"keys"}, heads{"kv_heads"}, entries{"entries"};
  std::optional<Tensor> dout, q, k, v, out, lse, dq, dk, dv, choice, lengths, dlse, delta, base, slots,
      dk_sum, dv_sum;
  std::optional<Expr> scale, behind, is_first, is_last;
  std::optional<PairLists> pairs;
};

Program::Program(const NsaSlotsKernel& instance) : c(instance), f(c.forward) {
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
  behind.emplace(scalar("behind", i32));
  require(entries <= f.entries, "a row has no more entries than the instance");
  declare_options(vector, of_k);
  delta.emplace(workspace("delta", of_q, f32));
  base.emplace(workspace("base", of_q, f32));
  pairs.emplace(f, PairLists::Extents{heads, batch * queries, batch * ceildiv(queries, chunk_tokens),
                                      ceildiv(keys, f.block)});
  slots.emplace(
      workspace("slots", {heads, batch * queries * pairs->width(), c.parts(), f.members, f.dim}, f.compute));
}

void Program::declare_options(const Extents& vector, const Extents& of_k) {
  if (f.counts) lengths.emplace(input("counts", {batch, queries, heads, 1}, i32));
  if (c.dlse) dlse.emplace(input("dlse", vector, f32));
  dk_sum.emplace(inout("dk_sum", joined(of_k, {f.dim}), f32));
  dv_sum.emplace(inout("dv_sum", joined(of_k, {f.dim_v}), f32));
  is_first.emplace(scalar("is_first", boolean));
  is_last.emplace(scalar("is_last", boolean));
}

void Program::run() {
  delta_grid();
  pair_grid();
  grid(ceildiv(keys, f.block) * c.parts(), heads, batch,
       [&](Index x, Index h, Index b) { key_block(x, h, b); });
  grid(ceildiv(queries, c.queries), heads, batch, [&](Index x, Index h, Index b) { sum_block(x, h, b); });
  grid(ceildiv(keys, delta_rows), heads, batch, [&](Index x, Index h, Index b) { round_block(x, h, b); });
}

void Program::delta_grid() {
  grid(ceildiv(queries, delta_rows), heads * f.members, batch, [&](Index x, Index h, Index b) {
    Expr kv_head = h / f.members, member = h % f.members;
    auto tokens = [&](const Tensor& t) { return t.slice(b, all, kv_head, member); };
    auto vector = [&](const Tensor& t) { return t.slice(b, kv_head, member); };
    HeadRows rows{tokens(*dout), tokens(*out), vector(*lse), tokens(*delta), tokens(*base), {}, f.dim_v};
    if (dlse) rows.dlse.emplace(vector(*dlse));
    write_delta(rows, x * delta_rows);
  });
}

void Program::pair_grid() {
  grid(ceildiv(queries, chunk_tokens), heads, batch, {.threads = 256}, [&](Index x, Index h, Index b) {
    Selection selection{choice->slice(b, all, h, 0), {}};
    if (lengths) selection.counts.emplace(lengths->slice(b, all, h, 0));
    pairs->find(chunk_of(x, h, b), tokens_from(x * chunk_tokens), selection);
  });
}

// The pairs of a list, a tile of tokens at a time. Tokens and heads that do not exist have zeros for rows,
// and so add nothing.
void Program::add_list(KeyGradient& sums, const PairLists::List& list, const Expr& b, const Expr& h,
                       const Expr& first, const Expr& end, const Tensor& slots_of) {
  const Tensor q_of = q->slice(b, all, h), dout_of = dout->slice(b, all, h), base_of = base->slice(b, all, h),
               delta_of = delta->slice(b, all, h);
  const Tensor own_slots = slots_of.slice(range(list.begin, list.begin + list.count));
  pipelined(ceildiv(list.count, c.queries), {.stages = 2}, [&](Index t) {
    auto token = [&](const Expr& i) -> Expr {
      Expr n = t * c.queries + i;
      return select(n < list.count, list.tokens(list.begin + n), no_row);
    };
    QueryTile tile(c.tiles());
    auto load = [&](const Tensor& from, Shared& to) {
      gather(
          from, [&](Index i) -> Expr { return token(i); }, to.reshape({c.queries, f.pack, to.extent(1)}));
    };
    load(q_of, tile.q);
    load(dout_of, tile.dout);
    parallel(tile.base, [&](Index i) { tile.base(i) = base_of(token(i / f.pack), i % f.pack); });
    parallel(tile.delta, [&](Index i) { tile.delta(i) = delta_of(token(i / f.pack), i % f.pack); });
    std::optional<Expr> partial;
    if (f.causal)
      partial.emplace(first + (c.keys - 1) > token(Operand(0)) + shift() || first + c.keys > end);
    else
      partial.emplace(first + c.keys > end);
    sums.add(
        tile.q, tile.dout, tile.base, tile.delta,
        {partial,
         [&](const Expr& r, const Expr& column, const Expr& weight) {
           Expr key = first + r;
           if (!f.causal) return select(key < end, weight, 0);
           Expr n = min(t * c.queries + column / f.pack, list.count - 1);
           return select(key < end && key - shift() <= list.tokens(list.begin + n), weight, 0);
         }},
        [&](const Fragment& contribution) {
          parallel(contribution, [&](Index r, Index j) {
            own_slots(t * c.queries + r / f.pack, r % f.pack, j) = contribution(r, j);
          });
        });
  });
}

void Program::key_block(const Index& x, const Index& h, const Index& b) {
  const int parts = c.parts();
  Expr number = parts == 1 ? Expr(x) : x / parts, part = parts == 1 ? Expr(Operand(0)) : x % parts;
  Expr first = number * f.block + part * c.keys, end = min(number * f.block + f.block, keys);
  // A part behind the last key leaves zeros in its slots.
  const Range own = range(0, end);
  KeyGradient sums(c.tiles(), gradient());
  sums.load(k->slice(b, own, h), v->slice(b, own, h), first);
  const Tensor dk_of = dk_sum->slice(b, own, h), dv_of = dv_sum->slice(b, own, h);
  when(!*is_first, [&] { sums.load_sums(dk_of, dv_of, first); });
  // Earlier tokens do not see the block.
  Expr first_chunk = f.causal ? clamp(first - shift(), 0, queries) / chunk_tokens : Expr(Operand(0));
  serial(range(first_chunk, ceildiv(queries, chunk_tokens)), [&](Index n) {
    PairLists::List list = pairs->list(chunk_of(n, h, b), number);
    add_list(sums, list, b, h, first, end, slots->slice(h, all, part));
  });
  sums.store_sums(dk_of, dv_of, first);
}

// The last call rounds the sums.
void Program::round_block(const Index& x, const Index& h, const Index& b) {
  exit_if(!*is_last);
  Expr factor = gradient().factor();
  auto round = [&](const Tensor& from, const Tensor& to, int features, bool scaled) {
    Fragment rows = load(from.slice(b, all, h).at(x * delta_rows), {delta_rows, features});
    if (scaled) parallel(rows, [&](Index i, Index j) { rows(i, j) *= factor; });
    copy(rows, to.slice(b, all, h).at(x * delta_rows));
  };
  round(*dk_sum, *dk, f.dim, true);
  round(*dv_sum, *dv, f.dim_v, false);
}

void Program::sum_block(const Index& x, const Index& h, const Index& b) {
  Expr first = x * c.queries;
  Fragment sum({c.queries * f.pack, f.dim}, f32, 0);
  Tensor slots_of = slots->slice(h);
  Shared places({c.queries, pairs->width()}, i32);
  parallel(places, [&](Index i, Index e) {
    Expr row = first + i;
    places(i, e) = select(row < queries, pairs->place(h, b * queries + row, e), -1);
  });
  for (int e = 0; e < pairs->width(); ++e) {
    for (int part = 0; part < c.parts(); ++part)
      parallel(sum,
               [&](Index r, Index j) { sum(r, j) += slots_of(places(r / f.pack, e), part, r % f.pack, j); });
  }
  Expr factor = gradient().factor();
  parallel(sum, [&](Index r, Index j) { sum(r, j) *= factor; });
  store_rows(sum, dq->slice(b, all, h), first, f.pack);
}

}  // namespace

Kernel nsa_slots_kernel(const NsaSlotsKernel& instance) {
  return kernel(instance.name(), [&] { Program(instance).run(); });
}

}  // namespace tegula::ops

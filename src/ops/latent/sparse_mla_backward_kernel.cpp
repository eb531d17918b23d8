#include "ops/latent/sparse_mla_backward_kernel.hpp"

#include <algorithm>
#include <vector>

#include "ops/latent/rows.hpp"
#include "ops/pieces/gradient.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int piece =
    128;  // features whose sums for listed rows lie in registers beside those of the queries

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

struct Program {
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
  Expr scale = scalar("scale", f32), is_first = scalar("is_first", i32);
  std::optional<Expr> offset;
  std::optional<Tensor> counts, dlse;
  Expr blocks = ceildiv(group, c.rows);
  Tensor base = workspace("base", {queries, kv_heads, group}, f32);
  Tensor marks = workspace("marks", {kv_heads, keys, instance.tokens}, i32, {.zero = true});
  // What pairs add to their rows.
  Tensor parts = workspace("parts", {queries, kv_heads, entries, blocks, c.dim}, c.type);
  LargeScores large;

  explicit Program(const SparseMlaBackwardKernel& of) : instance(of) {
    if (c.causal) offset.emplace(scalar("offset", i32));
    if (c.counts) counts.emplace(input("counts", {queries, kv_heads}, i32));
    if (instance.dlse) dlse.emplace(input("dlse", {queries, kv_heads, group}, f32));
  }

  void run() {
    write_deltas();
    mark();
    grid(queries * blocks, kv_heads, {.threads = c.rows == 64 && c.dim_v > 256 ? 256 : 0},
         [&](Index x, Index h) { block(x / blocks, h, x % blocks); });
    add_pairs();
  }
  void write_deltas();
  void mark();
  void block(const Expr& query, const Expr& h, const Expr& part);
  void add_pairs();

  Expr count(const Expr& query, const Expr& h) const {
    return counts ? clamp((*counts)(query, h), 0, entries) : Expr(entries);
  }
  // One behind the last row that a query sees.
  Expr last(const Expr& query) const { return offset ? min(keys, query + *offset + 1) : Expr(keys); }
  // The features of a piece of [.., values] and [.., rest].
  static Tensor columns(const LatentTensor& of, const Piece& p) {
    const Tensor& part = p.is_value ? of.values : *of.rest;
    return part.slice(all, range(p.is_value ? p.begin : 0, (p.is_value ? p.begin : 0) + p.size));
  }
};

void Program::write_deltas() {
  grid(ceildiv(queries, delta_rows), group, kv_heads, [&](Index x, Index member, Index h) {
    const auto own = [&](const Tensor& of) { return of.slice(all, h, member); };
    HeadRows rows{own(dout), own(out), own(lse), own(delta), own(base), {}, c.dim_v, large};
    if (dlse) rows.dlse.emplace(own(*dlse));
    write_delta(rows, x * delta_rows);
  });
}

void Program::mark() {
  grid(queries, kv_heads, [&](Index query, Index h) {
    Expr end = last(query);
    parallel(count(query, h), [&](Index n) {
      Expr row = indices(query, h, n);
      when(row >= 0 && row < end, [&] { atomic_add(marks(h, row, query), once_named + n); });
    });
  });
}

// The heads of a block: pieces of their queries and of their outputs' gradients, and the sums.
struct Heads {
  const Program& p;
  const SparseMlaKernel& c;
  Expr query, h, part, row;
  std::vector<Shared> q, dout;
  std::vector<Fragment> dq;
  Fragment base, delta;

  Heads(const Program& program, const Expr& own_query, const Expr& head, const Expr& block)
      : p(program),
        c(p.c),
        query(own_query),
        h(head),
        part(block),
        row(block * c.rows),
        base({c.rows}, f32),
        delta({c.rows}, f32) {
    const LatentTensor of = p.q.slice(query, h);
    for (const Piece& own : p.pieces) {
      q.emplace_back(std::initializer_list<int>{c.rows, own.tile}, c.compute);
      copy(Program::columns(of, own).at(row), q.back());
      dq.emplace_back(std::initializer_list<int>{c.rows, own.tile}, f32, 0);
      if (!own.is_value) continue;
      dout.emplace_back(std::initializer_list<int>{c.rows, own.tile}, c.compute);
      copy(p.dout.slice(query, h, all, range(own.begin, own.begin + own.size)).at(row), dout.back());
    }
    copy(p.base.slice(query, h).at(row), base);
    copy(p.delta.slice(query, h).at(row), delta);
  }
  void step(const Index& j);
  void store();
};

void Heads::step(const Index& j) {
  Shared rows({c.keys}, i32), weights({c.rows, c.keys}, c.compute), gradients({c.rows, c.keys}, c.compute);
  Tensor list = p.indices.slice(query, h, range(0, p.count(query, h)));
  copy(list.at(j * c.keys), rows, {.fill = c.whole ? 0. : -1.});
  const LatentTensor kv = p.kv.slice(all, h);
  std::vector<Shared> k;
  for (const Piece& own : p.pieces) {
    k.emplace_back(std::initializer_list<int>{c.keys, own.tile}, c.compute);
    gather(Program::columns(kv, own), rows, k.back());
  }
  Fragment s({c.rows, c.keys}, f32, 0), ds({c.rows, c.keys}, f32, 0);
  for (std::size_t i = 0; i < k.size(); ++i) gemm(q[i], k[i].T(), s);
  for (std::size_t i = 0; i < dout.size(); ++i) gemm(dout[i], k[i].T(), ds);
  Expr end = p.last(query);
  parallel(s, [&](Index i, Index n) {
    Expr seen = rows(n) >= 0 && rows(n) < end;
    // An lse that rounding made too small would have weights above 1.
    s(i, n) = select(seen, min(exp2(s(i, n) * p.scale - base(i)), 1), 0);
    ds(i, n) = s(i, n) * (ds(i, n) - delta(i));
  });
  copy(s, weights);
  copy(ds, gradients);
  for (std::size_t i = 0; i < k.size(); ++i) {
    const Piece& own = p.pieces[i];
    gemm(gradients, k[i], dq[i]);
    Fragment added({c.keys, own.tile}, f32, 0);
    gemm(gradients.T(), q[i], added);
    parallel(added, [&](Index n, Index d) { added(n, d) *= p.scale * ln2; });
    if (own.is_value) gemm(weights.T(), dout[i], added);
    Tensor to = p.parts.slice(query, h, all, part, range(own.begin, own.begin + own.size));
    parallel(added, [&](Index n, Index d) { to(j * c.keys + n, d) = added(n, d); });
  }
}

void Heads::store() {
  for (std::size_t i = 0; i < dq.size(); ++i) {
    const Piece& own = p.pieces[i];
    Tensor to = p.dq.slice(query, h, all, range(own.begin, own.begin + own.size));
    parallel(dq[i], [&](Index m, Index d) {
      Expr value = dq[i](m, d) * (p.scale * ln2);
      to(row + m, d) = p.instance.adds ? to(row + m, d) + value : value;
    });
  }
}

void Program::block(const Expr& query, const Expr& h, const Expr& part) {
  Heads own(*this, query, h, part);
  pipelined(ceildiv(count(query, h), c.keys), {.stages = 1}, [&](Index j) { own.step(j); });
  own.store();
}

// Every row has a block. A query that names it several times is rare: its whole list is read.
void Program::add_pairs() {
  grid(keys, kv_heads, {.threads = 128}, [&](Index key, Index h) {
    Shared named({instance.tokens}, i32);
    copy(marks.slice(h, key).at(0), named);
    Fragment sum({c.dim}, f32, 0);
    Tensor to = sums.slice(key, h);
    when(is_first == 0, [&] { copy(to.at(0), sum); });
    serial(min(queries, instance.tokens), [&](Index query) {
      Expr mark = named(query);
      when(mark != 0, [&] {
        Expr once = mark < 2 * once_named;
        const Range own =
            range(select(once, mark - once_named, 0), select(once, mark - once_named + 1, count(query, h)));
        serial(own, [&](Index n) {
          when(once || indices(query, h, n) == key, [&] {
            serial(blocks, [&](Index part) {
              Fragment added = load(parts.slice(query, h, n, part).at(0), {c.dim}, f32);
              parallel(sum, [&](Index d) { sum(d) += added(d); });
            });
          });
        });
      });
    });
    copy(sum, to.at(0));
  });
}

constexpr int rows_of_sum = 1024;

}  // namespace

Kernel sparse_mla_backward_kernel(const SparseMlaBackwardKernel& c) {
  return kernel(instance_name("sparse_mla_backward", c), [&] { Program(c).run(); });
}

// A sink's share of a row's sum is exp(sink − lse), and its gradient −share · delta.
Kernel sink_gradient_kernel(const SinkGradientKernel& c) {
  return kernel(instance_name("sparse_mla_sink_gradient", c), [&] {
    Dim rows("rows"), heads("heads");
    Tensor lse = input("lse", {rows, heads}, f32), delta = input("delta", {rows, heads}, f32);
    Tensor sinks = input("sinks", {heads}, c.type), dsinks = output("dsinks", {heads}, f32);
    grid(heads, [&](Index h) {
      Expr sink = f32(sinks(h));
      Fragment sums({rows_of_sum}, f32, 0);
      serial(ceildiv(rows, rows_of_sum), [&](Index n) {
        Fragment row_lse = load(lse.slice(all, h).at(n * rows_of_sum), {rows_of_sum}),
                 row_delta = load(delta.slice(all, h).at(n * rows_of_sum), {rows_of_sum});
        parallel(sums, [&](Index i) {
          Expr share = select(sink == inf, 1, exp2((sink - row_lse(i)) * log2e));
          Expr counts = n * rows_of_sum + i < rows && sink != -inf;
          sums(i) -= select(counts, share * row_delta(i), 0);
        });
      });
      dsinks(h) = reduce_sum(sums).scalar();
    });
  });
}

Kernel rounded_sums_kernel(const RoundedSumsKernel& c) {
  return kernel(instance_name("sparse_mla_rounded_sums", c), [&] {
    Dim keys("keys"), kv_heads("kv_heads");
    Tensor sums = input("sums", {keys, kv_heads, c.dim}, f32),
           dkv = output("dkv", {keys, kv_heads, c.dim}, c.type);
    constexpr int rows = 16;
    grid(ceildiv(keys, rows), kv_heads, [&](Index x, Index h) {
      Fragment tile = load(sums.slice(all, h).at(x * rows), {rows, c.dim});
      copy(tile, dkv.slice(all, h).at(x * rows));
    });
  });
}

}  // namespace tegula::ops

#include "ops/latent/sparse_mla_backward_kernel.hpp"

#include <algorithm>
#include <vector>

#include "ops/latent/rows.hpp"
#include "ops/latent/sparse_mla_pairs_kernel.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int piece =
    128;  // features whose sums for listed rows are in registers beside those of the queries

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

struct MlaBackwardProgram {
  const SparseMlaBackwardKernel& instance;
  const SparseMlaKernel& c = instance.forward;
  const std::vector<Piece> pieces = pieces_of(c);
  Dim queries{"queries"}, keys{"keys"}, kv_heads{"kv_heads"}, group{"group"}, padded{"padded"},
      pairs{"pairs"};
  LatentTensor q = LatentTensor::input("q", {queries, kv_heads, group}, c.dim, c.dim_v, c.type);
  LatentTensor kv = LatentTensor::input("kv", {keys, kv_heads}, c.dim, c.dim_v, c.type);
  Tensor dout = input("dout", {queries, kv_heads, group, c.dim_v}, c.type);
  Tensor base = input("base", {queries, kv_heads, group}, f32);
  Tensor delta = input("delta", {queries, kv_heads, group}, f32);
  Tensor rows = input("rows", {queries, kv_heads, padded}, i32);
  Tensor times = input("times", {queries, kv_heads, padded}, f32);
  Tensor dq = instance.adds ? inout("dq", {queries, kv_heads, group, c.dim}, c.type)
                            : output("dq", {queries, kv_heads, group, c.dim}, c.type);
  Tensor partials = output("parts", {kv_heads, pairs, c.dim}, c.type);
  Expr scale = scalar("scale", f32), entries = scalar("entries", i32);
  std::optional<Tensor> counts;
  const int blocks = instance.blocks;

  explicit MlaBackwardProgram(const SparseMlaBackwardKernel& of) : instance(of) {
    require(ceildiv(group, c.rows) == blocks, "the heads of a group fill the blocks of the instance");
    if (c.counts) counts.emplace(input("counts", {queries, kv_heads}, i32));
  }

  void run() {
    grid(queries * blocks, kv_heads, {.threads = c.rows == 64 && c.dim_v > most_undivided ? 256 : 0},
         [&](Index x, Index h) { block(x / blocks, h, x % blocks); });
  }
  void block(const Expr& query, const Expr& h, const Expr& heads_block);

  Expr count(const Expr& query, const Expr& h) const {
    return counts ? clamp((*counts)(query, h), 0, entries) : entries;
  }
  Expr place(const Expr& feature) const { return instance.exchanged ? exchanged_place(feature) : feature; }
  // The features of a piece of [.., values] and [.., rest].
  static Tensor columns(const LatentTensor& of, const Piece& p) {
    const Tensor& heads_block = p.is_value ? of.values : *of.rest;
    return heads_block.slice(all, range(p.is_value ? p.begin : 0, (p.is_value ? p.begin : 0) + p.size));
  }
};

// The heads of a block: pieces of their queries and of their outputs' gradients, and the sums.
struct Heads {
  const MlaBackwardProgram& p;
  const SparseMlaKernel& c;
  Expr query, h, heads_block, row;
  std::vector<Shared> q, dout;
  std::vector<Fragment> dq;
  Fragment base, delta;

  Heads(const MlaBackwardProgram& program, const Expr& own_query, const Expr& head, const Expr& block)
      : p(program),
        c(p.c),
        query(own_query),
        h(head),
        heads_block(block),
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
  void step(const Index& j);
  void store();
};

void Heads::step(const Index& j) {
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
    Tensor to = p.dq.slice(query, h, all, range(own.begin, own.begin + own.size));
    if (p.instance.adds) parallel(dq[i], [&](Index m, Index d) { dq[i](m, d) += f32(to(row + m, d)); });
    parallel(dq[i], [&](Index m, Index d) { to(row + m, d) = dq[i](m, d); });
  }
}

void MlaBackwardProgram::block(const Expr& query, const Expr& h, const Expr& heads_block) {
  Heads own(*this, query, h, heads_block);
  pipelined(ceildiv(count(query, h), c.keys), {.stages = 1}, [&](Index j) { own.step(j); });
  own.store();
}

}  // namespace

Kernel sparse_mla_backward_kernel(const SparseMlaBackwardKernel& c) {
  return kernel(instance_name("sparse_mla_backward", c), [&] { MlaBackwardProgram(c).run(); });
}

}  // namespace tegula::ops

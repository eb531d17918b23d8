#include "ops/latent/indexer_backward_kernel.hpp"

#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// With s = q kᵀ and g = dlogits · k_scales where the query sees the key: dweights = Σ g · relu(s), and the
// gradient of s is g · weights where s > 0, which goes on to q in a pass over queries and to k in one over
// keys.
struct IndexerBackwardProgram {
  const IndexerKernel& c;
  Dim batch{"batch"}, queries{"queries"}, keys{"keys"};
  Tensor dlogits = input("dlogits", {batch, queries, keys}, f32);
  Tensor q = input("q", {batch, queries, c.heads, c.dim}, c.type),
         k = input("k", {batch, keys, c.dim}, c.type);
  Tensor weights = input("weights", {batch, queries, c.heads}, c.weights);
  Tensor dq = output("dq", {batch, queries, c.heads, c.dim}, c.type),
         dk = output("dk", {batch, keys, c.dim}, c.type);
  Tensor dweights = output("dweights", {batch, queries, c.heads}, c.weights);
  std::optional<Tensor> scales, dscales;
  SeenKeys seen{batch, queries, keys, c.begins, c.ends, c.causal};

  explicit IndexerBackwardProgram(const IndexerKernel& instance) : c(instance) {
    if (!c.scales) return;
    scales.emplace(input("k_scales", {batch, keys}, f32));
    dscales.emplace(output("dk_scales", {batch, keys}, f32));
  }

  void load_query(const Expr& b, const Expr& query, Shared& tile, Shared& weight) const {
    copy(q.slice(b, query).at(0, 0), tile);
    copy(weights.slice(b, query).at(0), weight);
  }
  // Loads the gradient of the unscaled logits of the keys from `key` on.
  void load_gradient(const Expr& b, const Expr& query, const Expr& key, Shared& gradient) const {
    Expr begin = seen.begin(b, query), end = seen.end(b, query);
    parallel(gradient, [&](Index n) {
      Expr at = key + n;
      gradient(n) = select(at >= begin && at < end, Expr(dlogits(b, query, at)), 0);
    });
  }
  static void differentiate(Fragment& s, const Shared& gradient, const Shared& weight) {
    parallel(s, [&](Index n, Index h) { s(n, h) = select(s(n, h) > 0, gradient(n) * weight(h), 0); });
  }
  void of_query(const Expr& b, const Expr& query);
  void of_keys(const Expr& b, const Expr& key);
};

void IndexerBackwardProgram::of_query(const Expr& b, const Expr& query) {
  Shared own({c.tile_heads, c.tile_features}, c.compute), weight({c.tile_heads}, f32);
  load_query(b, query, own, weight);
  Fragment sum({c.tile_heads, c.tile_features}, f32, 0), weight_sum({c.tile_heads}, f32, 0);
  Expr begin = seen.begin(b, query) / c.keys, end = ceildiv(seen.end(b, query), c.keys);
  pipelined(range(begin, end), {.stages = 2}, [&](Index j) {
    Shared tile({c.keys, c.tile_features}, c.compute), gradient({c.keys}, f32);
    copy(k.slice(b).at(j * c.keys), tile);
    load_gradient(b, query, j * c.keys, gradient);
    if (scales) parallel(gradient, [&](Index n) { gradient(n) *= (*scales)(b, j * c.keys + n); });
    Fragment s({c.keys, c.tile_heads}, f32, 0);
    gemm(tile, own.T(), s);
    Fragment products = map(s, [&](Index n, Index h) { return max(s(n, h), 0) * gradient(n); });
    reduce_sum(products, weight_sum, 0);
    differentiate(s, gradient, weight);
    Shared ds({c.keys, c.tile_heads}, c.compute);
    copy(s, ds);
    gemm(ds.T(), tile, sum);
  });
  copy(sum, dq.slice(b, query).at(0, 0));
  copy(weight_sum, dweights.slice(b, query).at(0));
}

void IndexerBackwardProgram::of_keys(const Expr& b, const Expr& key) {
  Shared tile({c.keys, c.tile_features}, c.compute);
  copy(k.slice(b).at(key), tile);
  Fragment sum({c.keys, c.tile_features}, f32, 0), scale_sum({c.keys}, f32, 0);
  // If causal: the first query that sees one of these keys.
  Expr first = seen.offset ? clamp(key - *seen.offset, 0, queries) : Expr(Operand(0));
  pipelined(range(first, queries), {.stages = 2}, [&](Index query) {
    Shared own({c.tile_heads, c.tile_features}, c.compute), weight({c.tile_heads}, f32),
        gradient({c.keys}, f32);
    load_query(b, query, own, weight);
    load_gradient(b, query, key, gradient);
    Fragment s({c.keys, c.tile_heads}, f32, 0);
    gemm(tile, own.T(), s);
    if (scales) {
      Fragment products =
          map(s, [&](Index n, Index h) { return max(s(n, h), 0) * (gradient(n) * weight(h)); });
      reduce_sum(products, scale_sum, 1);
    }
    differentiate(s, gradient, weight);
    add_product(s, own, sum, c.compute);
  });
  if (scales) {
    Fragment scale = load(scales->slice(b).at(key), {c.keys});
    scale_rows(sum, scale);
    copy(scale_sum, dscales->slice(b).at(key));
  }
  copy(sum, dk.slice(b).at(key));
}

}  // namespace

Kernel indexer_backward_kernel(const IndexerBackwardKernel& c) {
  return kernel(instance_name("indexer_logits_backward", c), [&] {
    IndexerBackwardProgram program(c.forward);
    grid(program.queries, program.batch, [&](Index query, Index b) { program.of_query(b, query); });
    grid(ceildiv(program.keys, c.forward.keys), program.batch,
         [&](Index x, Index b) { program.of_keys(b, x * c.forward.keys); });
  });
}

}  // namespace tegula::ops

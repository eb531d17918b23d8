#include "ops/latent/sparse_mla_decode_kernel.hpp"

#include "ops/latent/rows.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/splits.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

struct MlaDecodeProgram {
  const SparseMlaDecodeKernel& c;
  Dim queries{"queries"}, heads{"heads"}, rows{c.page > 0 ? "pages" : "rows"}, entries{"entries"};
  LatentTensor q = LatentTensor::input("q", {queries, heads}, c.dim, c.dim_v, c.type);
  Tensor values = input("values", of_records(c.in_8_bits), e4m3);
  Tensor scales = input("scales", of_records(c.in_8_bits / c.scaled), c.powers ? u8 : f32);
  Tensor indices = input("indices", {queries, entries}, i32);
  Tensor out = output("out", {queries, heads, c.dim_v}, c.type), lse = output("lse", {queries, heads}, f32);
  Expr scale = scalar("scale", f32), splits = scalar("splits", i32);
  std::optional<Tensor> ropes, counts, sinks;
  SplitResults results{queries, heads, splits, c.dim_v};

  explicit MlaDecodeProgram(const SparseMlaDecodeKernel& instance) : c(instance) {
    if (c.dim > c.in_8_bits) ropes.emplace(input("ropes", of_records(c.dim - c.in_8_bits), c.type));
    if (c.counts) counts.emplace(input("counts", {queries}, i32));
    if (c.sinks) sinks.emplace(input("sinks", {heads}, *c.sinks));
  }

  void run() {
    Expr blocks = ceildiv(heads, c.rows), of_query = blocks * splits;
    grid(queries * of_query, {.threads = c.rows == 64 && c.dim_v > 256 ? 256 : 0},
         [&](Index x) { block(x / of_query, x % blocks * c.rows, x % of_query / blocks); });
    grid(heads, queries, [&](Index h, Index query) {
      std::optional<Expr> sink;
      if (sinks) sink.emplace(f32((*sinks)(h)));
      lse(query, h) = results.merge(query, h, sink, out.slice(query, h));
    });
  }
  Extents of_records(int features) const {
    return c.page > 0 ? Extents{rows, c.page, features} : Extents{rows, features};
  }
  Expr records() const { return c.page > 0 ? rows * c.page : Expr(rows); }
  // An element of record r; one of no record reads as 0.
  Expr at(const Tensor& of, const Expr& r, const Expr& d) const {
    return c.page > 0 ? of(r / c.page, r % c.page, d) : of(r, d);
  }
  Expr value(const Expr& r, const Expr& d) const;
  void block(const Expr& query, const Expr& head, const Expr& split);
};

Expr MlaDecodeProgram::value(const Expr& r, const Expr& d) const {
  Expr scale = at(scales, r, d / c.scaled),
       scaled = at(values, r, d) * (c.powers ? bitcast(u32(scale) << 23, f32) : scale);
  if (c.in_8_bits == c.dim_v) return scaled;
  return select(d < c.in_8_bits, scaled, at(*ropes, r, d - c.in_8_bits));
}

void MlaDecodeProgram::block(const Expr& query, const Expr& head, const Expr& split) {
  LatentTile own(c.rows, c.dim, c.dim_v, c.padded, c.compute);
  own.copy_from(q.slice(query), head);
  Fragment acc({c.rows, c.padded.of(c.dim_v)}, f32, 0);
  OnlineSoftmax softmax(c.rows, scale);
  Expr count = counts ? clamp((*counts)(query), 0, entries) : Expr(entries);
  Expr steps = ceildiv(count, c.keys), each = ceildiv(steps, splits);
  pipelined(range(split * each, min(steps, (split + 1) * each)), {.stages = 2}, [&](Index j) {
    const auto row = [&](const Index& i) -> Expr {
      Expr n = j * c.keys + i;
      return select(n < count, indices(query, n), -1);
    };
    LatentTile k(c.keys, c.dim, c.dim_v, c.padded, c.compute);
    Shared seen({c.keys}, boolean);
    parallel(k.values, [&](Index i, Index d) { k.values(i, d) = value(row(i), d); });
    if (k.rest && c.page > 0)
      parallel(*k.rest, [&](Index i, Index d) { (*k.rest)(i, d) = at(*ropes, row(i), d); });
    else if (k.rest)
      gather(*ropes, row, *k.rest);
    parallel(seen, [&](Index i) {
      Expr r = row(i);
      seen(i) = r >= 0 && r < records();
    });
    Fragment s({c.rows, c.keys}, f32, 0);
    add_scores(own, k, s);
    parallel(s, [&](Index i, Index n) { s(i, n) = select(seen(n), s(i, n), -inf); });
    scale_rows(acc, softmax.update(s));
    add_product(s, k.values, acc, c.compute);
  });
  softmax.normalize(acc);
  Fragment own_lse = softmax.lse();
  const Range query_only = range(query, query + 1), all_heads = range(0, heads);
  Tensor to = results.out(query_only, all_heads, split), lse_to = results.lse(query_only, all_heads, split);
  parallel(acc, [&](Index i, Index d) { to(0, head + i, d) = acc(i, d); });
  parallel(own_lse, [&](Index i) { lse_to(head + i, 0) = own_lse(i); });
}

}  // namespace

Kernel sparse_mla_decode_kernel(const SparseMlaDecodeKernel& c) {
  return kernel(instance_name("sparse_mla_decode", c), [&] { MlaDecodeProgram(c).run(); });
}

}  // namespace tegula::ops

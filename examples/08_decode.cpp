// Lesson 8: decoding. There is one query per sequence, and keys and values are in pages of a shared cache.
// The keys of a sequence are split among blocks, and a second grid merges the partial results, so that even a
// few sequences keep all processors busy.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// The query heads that share keys and values are the rows of a tile. Page p of sequence b is page
// table[b, p] of the cache; a page holds `page` keys.
Kernel decode(int heads, int dim, int page, int splits) {
  return kernel("decode", [&] {
    Dim B("B"), P("pages"), W("width");
    Tensor Q = input("q", {B, heads, dim}, f32), K = input("k", {P, page, dim}, f32);
    Tensor V = input("v", {P, page, dim}, f32), table = input("table", {B, W}, i32);
    Tensor lengths = input("lengths", {B}, i32), O = output("out", {B, heads, dim}, f32);
    Tensor parts = workspace("parts", {B, splits, heads, dim}, f32),
           lse = workspace("lse", {B, splits, heads}, f32);
    float scale = 1 / std::sqrt(static_cast<float>(dim));

    grid(splits, B, [&](Index split, Index b) {
      Expr length = lengths(b), pages = ceildiv(length, page), each = ceildiv(pages, splits);
      Shared q({heads, dim}, f32);
      copy(Q.slice(b).at(0), q);
      Fragment acc({heads, dim}, f32, 0), top({heads}, f32, -inf), sum({heads}, f32, 0);
      pipelined(range(split * each, min((split + 1) * each, pages)), {.stages = 2}, [&](Index p) {
        Expr at = table(b, p);
        Shared k({page, dim}, f32), v({page, dim}, f32);
        copy(K.slice(at).at(0), k);
        copy(V.slice(at).at(0), v);
        Fragment s({heads, page}, f32, 0), before = clone(top);
        gemm(q, k.T(), s);
        parallel(s,
                 [&](Index h, Index j) { s(h, j) = select(p * page + j < length, s(h, j) * scale, -inf); });
        reduce_max(s, top);  // every page of the range has a key, so the maximum is finite from here on
        parallel(sum, [&](Index h) { sum(h) *= exp(before(h) - top(h)); });
        parallel(acc, [&](Index h, Index d) { acc(h, d) *= exp(before(h) - top(h)); });
        parallel(s, [&](Index h, Index j) { s(h, j) = exp(s(h, j) - top(h)); });
        reduce_sum(s, sum);
        gemm(s, v, acc);
      });
      // A split without pages has weight 0 in the merge, because its lse is −∞.
      parallel(acc, [&](Index h, Index d) { acc(h, d) = select(sum(h) == 0, 0, acc(h, d) / sum(h)); });
      copy(acc, parts.slice(b, split).at(0));
      parallel(sum, [&](Index h) { sum(h) = select(sum(h) == 0, -inf, top(h) + log(sum(h))); });
      copy(sum, lse.slice(b, split).at(0));
    });

    // out = Σ exp(lse) · part / Σ exp(lse), relative to the largest lse.
    grid(B, [&](Index b) {
      Fragment acc({heads, dim}, f32, 0), top({heads}, f32, -inf), sum({heads}, f32, 0);
      serial(splits, [&](Index s) { parallel(top, [&](Index h) { top(h) = max(top(h), lse(b, s, h)); }); });
      serial(splits, [&](Index s) {
        Fragment part = load(parts.slice(b, s).at(0), {heads, dim});
        Fragment weight = map(sum, [&](Index h) { return exp(lse(b, s, h) - top(h)); });
        parallel(sum, [&](Index h) { sum(h) += weight(h); });
        parallel(acc, [&](Index h, Index d) { acc(h, d) += weight(h) * part(h, d); });
      });
      parallel(acc, [&](Index h, Index d) { acc(h, d) /= sum(h); });
      copy(acc, O.slice(b).at(0));
    });
  });
}

TEGULA_KERNELS(decode(4, 16, 8, 3))  // what `tegula show` and tegula.load() find here

int main() {
  constexpr int heads = 4, dim = 16, page = 8;
  std::vector<int> lengths = {1, 30, 17}, table = {5, 0, 0, 0, 2, 7, 0, 3, 6, 1, 4, 0};
  auto q = tegula::Tensor::random_normal({3, heads, dim}, f32, 1),
       k = tegula::Tensor::random_normal({8, page, dim}, f32, 2),
       v = tegula::Tensor::random_normal({8, page, dim}, f32, 3);
  auto out = tegula::Tensor::empty({3, heads, dim}, f32),
       expected = tegula::Tensor::zeros({3, heads, dim}, f32);
  tegula::compile(decode(heads, dim, page, 3))(q, k, v, tegula::Tensor::from(table, {3, 4}),
                                               tegula::Tensor::from(lengths), out);
  for (int b = 0; b < 3; ++b)
    for (int h = 0; h < heads; ++h) {
      double sum = 0, result[dim] = {};
      for (int j = 0; j < lengths[b]; ++j) {
        int at = table[b * 4 + j / page];
        double score = 0;
        for (int d = 0; d < dim; ++d) score += q.get({b, h, d}) * k.get({at, j % page, d});
        double weight = std::exp(score / std::sqrt(dim));
        sum += weight;
        for (int d = 0; d < dim; ++d) result[d] += weight * v.get({at, j % page, d});
      }
      for (int d = 0; d < dim; ++d) expected.set({b, h, d}, result[d] / sum);
    }
  check("decode", out, expected, 1e-5);
}

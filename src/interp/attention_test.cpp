// Programs of real size against plain references in double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace attention_test {

using namespace tegula::lang;
using Data = tegula::Tensor;

constexpr int rows = 8, keys = 16, width = 8;

// One head; causal, aligned to the bottom right; blocks of keys that hold the keys of `list`, -1 is skipped.
Kernel block_sparse() {
  return kernel("block_sparse", [] {
    Dim Sq("Sq"), Sk("Sk"), L("L");
    Tensor Q = input("Q", {Sq, width}, f16), K = input("K", {Sk, width}, f16),
           V = input("V", {Sk, width}, f16);
    Tensor list = input("list", {ceildiv(Sq, rows), L}, i32);
    Tensor O = output("O", {Sq, width}, f32);
    grid(ceildiv(Sq, rows), [&](Index b) {
      Expr first = b * rows;
      Shared q({rows, width}, f16);
      copy(Q.at(first), q);
      Fragment acc({rows, width}, f32, 0), most({rows}, f32, -inf), sum({rows}, f32, 0);
      pipelined(L, [&](Index n) {
        Expr block = list(b, n);
        when(block >= 0, [&] {
          Shared k({keys, width}, f16), v({keys, width}, f16);
          copy(K.at(block * keys), k);
          copy(V.at(block * keys), v);
          Fragment s({rows, keys}, f32, 0);
          gemm(q, k.T(), s);
          parallel(s, [&](Index i, Index j) {
            Expr key = block * keys + j;
            s(i, j) = select(key < Sk && key <= first + i + Sk - Sq, s(i, j), -inf);
          });
          Fragment before = clone(most), shift({rows}, f32), factor({rows}, f32);
          reduce_max(s, most);
          parallel(most, [&](Index i) {
            shift(i) = select(most(i) == -inf, 0, most(i));
            factor(i) = exp(before(i) - shift(i));
            sum(i) *= factor(i);
          });
          parallel(s, [&](Index i, Index j) { s(i, j) = exp(s(i, j) - shift(i)); });
          reduce_sum(s, sum);
          parallel(acc, [&](Index i, Index j) { acc(i, j) *= factor(i); });
          gemm(s.to(f16), v, acc);
        });
      });
      parallel(acc, [&](Index i, Index j) { acc(i, j) = select(sum(i) > 0, acc(i, j) / sum(i), 0); });
      copy(acc, O.at(first));
    });
  });
}

std::vector<double> reference_row(const Data& q, const Data& k, const Data& v, const Data& list, int i) {
  const std::int64_t queries = q.size(0), count = k.size(0);
  std::vector<double> result(width);
  double sum = 0;
  for (std::int64_t n = 0; n < list.size(1); ++n) {
    const auto block = static_cast<std::int64_t>(list.get({i / rows, n}));
    if (block < 0) continue;
    for (std::int64_t j = block * keys; j < std::min(count, (block + 1) * keys); ++j) {
      if (j > i + count - queries) continue;
      double score = 0;
      for (int d = 0; d < width; ++d) score += q.get({i, d}) * k.get({j, d});
      sum += std::exp(score);
      for (int d = 0; d < width; ++d) result[d] += std::exp(score) * v.get({j, d});
    }
  }
  for (double& x : result) x = sum > 0 ? x / sum : 0;
  return result;
}

TEST(InterpretedPrograms, BlockSparseAttention) {
  const auto f = tegula::compile(block_sparse(), tegula::Target::interpreter());
  const Data q = Data::random_normal({19, width}, f16, 1), k = Data::random_normal({53, width}, f16, 2);
  const Data v = Data::random_normal({53, width}, f16, 3), o = Data::zeros({19, width}, f32);
  const Data list = Data::from<std::int32_t>({0, -1, 3, -1, -1, -1, 1, 2, 0}, {3, 3});
  f(q, k, v, list, o);
  for (int i = 0; i < 19; ++i) {
    const std::vector<double> expected = reference_row(q, k, v, list, i);
    for (int d = 0; d < width; ++d) ASSERT_NEAR(o.get({i, d}), expected[d], 4e-3) << i << ", " << d;
  }
}

}  // namespace

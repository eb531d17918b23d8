// Lesson 5: attention, with a reusable component, and views that are clipped to a sequence.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// Online softmax: the tiles of scores arrive one after another.
struct RunningSoftmax {
  Fragment top, sum;

  explicit RunningSoftmax(int rows, Loc at = Loc::current())
      : top({rows}, f32, -inf, at), sum({rows}, f32, 0, at) {}

  // Turns scores into weights, and rescales the accumulator, which is relative to the old maximum.
  void update(Fragment& scores, Fragment& acc, Loc at = Loc::current()) {
    Trace trace("RunningSoftmax::update", at);
    Fragment before = clone(top), factor(top.shape(), f32, at);
    reduce_max(scores, top);
    parallel(factor, [&](Index i) {
      factor(i) = select(before(i) == -inf, 0, exp(before(i) - top(i)));
      sum(i) *= factor(i);
    });
    parallel(scores,
             [&](Index i, Index j) { scores(i, j) = select(top(i) == -inf, 0, exp(scores(i, j) - top(i))); });
    reduce_sum(scores, sum);
    parallel(acc, [&](Index i, Index j) { acc(i, j) *= factor(i); });
  }
};

// Causal attention over packed sequences: sequence b consists of rows begin[b] to begin[b + 1] − 1.
// Each block handles one tile of queries of one sequence.
Kernel packed_attention(int dim, int queries, int keys) {
  return kernel("packed_attention", [&] {
    Dim T("T"), Ends("Ends");
    Tensor Q = input("Q", {T, dim}, f32), K = input("K", {T, dim}, f32), V = input("V", {T, dim}, f32);
    Tensor begin = input("begin", {Ends}, i32), O = output("O", {T, dim}, f32);
    Expr longest = scalar("longest", i32), sequences = Ends - 1;
    float scale = 1 / std::sqrt(static_cast<float>(dim));

    grid(ceildiv(longest, queries), sequences, [&](Index block, Index b) {
      Range rows = range(begin(b), begin(b + 1));
      Tensor q = Q.slice(rows), k = K.slice(rows), v = V.slice(rows), o = O.slice(rows);
      Expr first = block * queries, length = q.extent(0);
      exit_if(first >= length);

      Shared Qs({queries, dim}, f32);
      copy(q.at(first), Qs);
      Fragment acc({queries, dim}, f32, 0);
      RunningSoftmax softmax(queries);
      pipelined(ceildiv(min(first + queries, length), keys), [&](Index j) {
        Shared Ks({keys, dim}, f32), Vs({keys, dim}, f32);
        copy(k.at(j * keys), Ks);  // rows of the next sequence are outside the view and read as zeros
        copy(v.at(j * keys), Vs);
        Fragment S({queries, keys}, f32, 0);
        gemm(Qs, Ks.T(), S);
        parallel(S, [&](Index r, Index c) {
          Expr key = j * keys + c;
          S(r, c) = select(key <= first + r && key < length, S(r, c) * scale, -inf);
        });
        softmax.update(S, acc);
        gemm(S, Vs, acc);
      });
      parallel(acc, [&](Index i, Index j) { acc(i, j) /= softmax.sum(i); });
      copy(acc, o.at(first));
    });
  });
}

TEGULA_KERNELS(packed_attention(16, 16, 8))  // what `tegula show` and tegula.load() find here

int main() {
  constexpr int dim = 16;
  std::vector<int> begin = {0, 5, 5, 42, 60};
  auto shape = tegula::Shape{60, dim};
  auto q = tegula::Tensor::random_normal(shape, f32, 1), k = tegula::Tensor::random_normal(shape, f32, 2),
       v = tegula::Tensor::random_normal(shape, f32, 3);
  auto out = tegula::Tensor::empty(shape, f32), expected = tegula::Tensor::zeros(shape, f32);
  tegula::compile(packed_attention(dim, 16, 8))
      .call({{"Q", q},
             {"K", k},
             {"V", v},
             {"begin", tegula::Tensor::from(begin)},
             {"O", out},
             {"longest", 37}});

  for (std::size_t b = 0; b + 1 < begin.size(); ++b)
    for (int i = begin[b]; i < begin[b + 1]; ++i) {
      std::vector<double> weight;
      double sum = 0;
      for (int j = begin[b]; j <= i; ++j) {
        double score = 0;
        for (int d = 0; d < dim; ++d) score += q.get({i, d}) * k.get({j, d});
        weight.push_back(std::exp(score / std::sqrt(dim)));
        sum += weight.back();
      }
      for (int d = 0; d < dim; ++d) {
        double value = 0;
        for (std::size_t j = 0; j < weight.size(); ++j)
          value += weight[j] * v.get({begin[b] + static_cast<int>(j), d});
        expected.set({i, d}, value / sum);
      }
    }
  check("packed_attention", out, expected, 1e-5);
}

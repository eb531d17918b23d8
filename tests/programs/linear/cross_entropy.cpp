// Cross entropy of rows of logits, and its gradient in place of them: loss = lse − logit of the target,
// gradient = (softmax − one-hot) · scale. Targets below 0 have no loss.
#include "tests/programs/list.hpp"

namespace programs {
namespace {

// The lse of a row that is read in pieces. Every column of a piece has its own maximum and sum, so that
// columns are reduced once, at the end.
Expr lse_in_pieces(const Tensor& row, int piece) {
  Fragment top({piece}, f32, -inf), sum({piece}, f32, 0), x({piece}, f32);
  pipelined(ceildiv(row.extent(0), piece), {.stages = 2}, [&](Index n) {
    copy(row.at(n * piece), x, {.fill = -inf});
    parallel(x, [&](Index i) {
      Expr before = top(i), now = max(before, x(i)), shift = select(now == -inf, 0, now);
      sum(i) = sum(i) * exp2((before - shift) * log2e) + exp2((x(i) - shift) * log2e);
      top(i) = now;
    });
  });
  Expr largest = reduce_max(top).scalar();
  parallel(sum, [&](Index i) { sum(i) *= exp2((top(i) - largest) * log2e); });
  return largest + log(reduce_sum(sum).scalar());
}

Kernel cross_entropy_of(int piece, DType type) {
  return kernel("cross_entropy", [&] {
    Dim M("M"), V("V");
    Tensor logits = inout("logits", {M, V}, type), target = input("target", {M}, i32);
    Tensor loss = output("loss", {M}, f32), lse = output("lse", {M}, f32);
    Expr scale = scalar("scale", f32);
    grid(M, [&](Index row) {
      Tensor x_of = logits.slice(row);
      Expr own = lse_in_pieces(x_of, piece), label = target(row), counts = label >= 0;
      loss(row) = select(counts, own - x_of(label), 0);
      lse(row) = own;
      Expr factor = select(counts, scale, 0);
      pipelined(ceildiv(V, piece), {.stages = 2}, [&](Index n) {
        Fragment x({piece}, f32);
        copy(x_of.at(n * piece), x);
        parallel(x, [&](Index i) {
          x(i) = (exp2((x(i) - own) * log2e) - select(n * piece + i == label, 1.0f, 0.0f)) * factor;
        });
        copy(x, x_of.at(n * piece));
      });
    });
  });
}

Prepared cross_entropy_call(const std::vector<int>& labels, int vocabulary) {
  const int rows = static_cast<int>(labels.size());
  const double scale = 0.5;
  const Data x = normal({rows, vocabulary}, bf16, 1, 3);
  const Numbers X(x);
  Numbers gradient(X.shape), loss({rows}), lse({rows});
  each(rows, [&](int i) {
    const int label = labels[i];
    lse(i) = std::log(sum_of(vocabulary, [&](int j) { return std::exp(X(i, j)); }));
    if (label < 0) return;
    loss(i) = lse(i) - X(i, label);
    each(vocabulary, [&](int j) { gradient(i, j) = (std::exp(X(i, j) - lse(i)) - (j == label)) * scale; });
  });
  return {cross_entropy_of(64, bf16),
          {Wanted{gradient, bf16, 1e-2, x}, Data::from(labels), Wanted{loss, f32, 1e-5},
           Wanted{lse, f32, 1e-5}, scale}};
}

}  // namespace

Program cross_entropy() {
  return {"linear",
          "cross_entropy",
          "loss and lse of rows of logits, which their gradient replaces",
          {{"",
            [] {
              return cross_entropy_call({3, -100, 199, 0}, 200);
            }}},
          {{"pieces of 4096", [] { return cross_entropy_of(4096, bf16); }}}};
}

}  // namespace programs

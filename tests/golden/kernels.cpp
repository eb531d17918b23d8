#include "tests/golden/kernels.hpp"

namespace golden {

using namespace tegula::lang;

Kernel vector_add() {
  return kernel("vector_add", [] {
    Dim N("N");
    Tensor X = input("X", {N}, f32), Y = input("Y", {N}, f32), Z = output("Z", {N}, f32);
    grid(ceildiv(N, 256), [&](Index block) {
      Fragment x = load(X.at(block * 256), {256}), y = load(Y.at(block * 256), {256});
      parallel(x, [&](Index i) { x(i) += y(i); });
      copy(x, Z.at(block * 256));
    });
  });
}

// Rows of at most 128 elements.
Kernel row_softmax() {
  return kernel("row_softmax", [] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, f16), Y = output("Y", {M, N}, f16);
    require(N <= 128, "rows have at most 128 elements");
    grid(ceildiv(M, 8), [&](Index block) {
      Fragment x({8, 128}, f32);
      copy(X.at(block * 8), x, {.fill = -inf});
      Fragment top = reduce_max(x);
      parallel(x, [&](Index i, Index j) { x(i, j) = exp(x(i, j) - top(i)); });
      Fragment sum = reduce_sum(x);
      parallel(x, [&](Index i, Index j) { x(i, j) /= sum(i); });
      copy(x, Y.at(block * 8));
    });
  });
}

Kernel gemm() {
  return kernel("gemm", [] {
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, bf16), B = input("B", {N, K}, bf16), C = output("C", {M, N}, f32);
    grid(ceildiv(N, 64), ceildiv(M, 32), {.order = Order::grouped(8)}, [&](Index column, Index row) {
      Fragment c({32, 64}, f32, 0);
      pipelined(ceildiv(K, 32), {.stages = 3}, [&](Index k) {
        Shared a({32, 32}, bf16), b({64, 32}, bf16);
        copy(A.at(row * 32, k * 32), a);
        copy(B.at(column * 64, k * 32), b);
        tegula::lang::gemm(a, b.T(), c);
      });
      copy(c, C.at(row * 32, column * 64));
    });
  });
}

namespace {

// Rows of scores become weights; what was summed under a lower maximum is scaled down.
struct Softmax {
  int rows;
  Fragment top, sum;
  explicit Softmax(int rows) : rows(rows), top({rows}, f32, -inf), sum({rows}, f32, 0) {}

  void weigh(Fragment& scores, Fragment& values) {
    Fragment before = clone(top), factor({rows}, f32);
    reduce_max(scores, top);
    parallel(factor, [&](Index i) {
      factor(i) = select(before(i) == -inf, 0, exp2(before(i) - top(i)));
      sum(i) *= factor(i);
    });
    parallel(scores, [&](Index i, Index j) {
      scores(i, j) = select(top(i) == -inf, 0, exp2(scores(i, j) - top(i)));
    });
    reduce_sum(scores, sum);
    parallel(values, [&](Index i, Index j) { values(i, j) *= factor(i); });
  }
  void finish(Fragment& values) {
    parallel(values, [&](Index i, Index j) { values(i, j) = select(sum(i) == 0, 0, values(i, j) / sum(i)); });
  }
};

}  // namespace

// Causal; one head.
Kernel attention() {
  return kernel("attention", [] {
    Dim S("S");
    Tensor Q = input("Q", {S, 32}, f32), K = input("K", {S, 32}, f32), V = input("V", {S, 32}, f32);
    Tensor O = output("O", {S, 32}, f32);
    Expr scale = scalar("scale", f32);
    auto cost = [](Index block) { return block + 1; };
    grid(ceildiv(S, 32), {.order = Order::heavy_first(cost)}, [&](Index block) {
      Shared q({32, 32}, f32);
      copy(Q.at(block * 32), q);
      Fragment o({32, 32}, f32, 0);
      Softmax softmax(32);
      pipelined(block + 1, [&](Index n) {
        Shared k({32, 32}, f32), v({32, 32}, f32);
        copy(K.at(n * 32), k);
        copy(V.at(n * 32), v);
        Fragment s({32, 32}, f32, 0);
        tegula::lang::gemm(q, k.T(), s);
        parallel(s, [&](Index i, Index j) {
          s(i, j) = select(n * 32 + j <= block * 32 + i, s(i, j) * scale, -inf);
        });
        softmax.weigh(s, o);
        tegula::lang::gemm(s, v, o);
      });
      softmax.finish(o);
      copy(o, O.at(block * 32));
    });
  });
}

// Each block of 16 queries sees the blocks of 16 keys that its list names; -1 ends a list.
Kernel block_sparse() {
  return kernel("block_sparse", [] {
    Dim S("S"), T("T"), Blocks("Blocks"), Entries("Entries");
    Tensor Q = input("Q", {S, 32}, f16), K = input("K", {T, 32}, f16), V = input("V", {T, 32}, f16);
    Tensor Lists = input("Lists", {Blocks, Entries}, i32), O = output("O", {S, 32}, f16);
    require(Blocks == ceildiv(S, 16), "there is a list for every 16 queries");
    grid(Blocks, [&](Index block) {
      Shared q({16, 32}, f16);
      copy(Q.at(block * 16), q);
      Fragment o({16, 32}, f32, 0);
      Softmax softmax(16);
      serial(Entries, [&](Index entry) {
        Expr chosen = Lists(block, entry);
        break_if(chosen < 0);
        Shared k({16, 32}, f16), v({16, 32}, f16);
        copy(K.at(chosen * 16), k);
        copy(V.at(chosen * 16), v);
        Fragment s({16, 16}, f32, 0);
        tegula::lang::gemm(q, k.T(), s);
        parallel(s, [&](Index i, Index j) { s(i, j) = select(chosen * 16 + j < T, s(i, j) * 0.25f, -inf); });
        softmax.weigh(s, o);
        Fragment weights = s.to(f16);
        tegula::lang::gemm(weights, v, o);
      });
      softmax.finish(o);
      copy(o, O.at(block * 16));
    });
  });
}

}  // namespace golden

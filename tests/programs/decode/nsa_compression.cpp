// The compression branch of native sparse attention: keys and values are averaged over blocks, every token
// attends to the means of the blocks that end before or at its position, and the weights, summed over the
// heads of a group, are the scores by which blocks are selected.
#include "tests/programs/decode/attention.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct CompressionTile {
  int group = 16, dim = 128, block = 64;
  int queries = 8, blocks = 64;  // of a block of the grid, means of a step
  int threads = 0;
  DType type = bf16;
};

void average_blocks(const Tensor& from, const Tensor& to, const CompressionTile& t) {
  grid(to.extent(1), from.extent(2), from.extent(0), [&](Index n, Index h, Index b) {
    Fragment x({t.block, t.dim}, f32);
    copy(from.slice(b, all, h).at(n * t.block), x);
    Fragment mean = reduce_sum(x, 0);
    parallel(mean, [&](Index d) { mean(d) *= 1.0f / float(t.block); });
    copy(mean, to.slice(b, n, h).at(0));
  });
}

// Products of a tile of queries, whose rows are heads of tokens from t0 on, with means from `first` on. A
// block is seen from its last position on.
void multiply_seen(const Shared& q, const Shared& k, const Expr& first, const Expr& t0, Fragment& s,
                   const CompressionTile& t) {
  gemm(q, k.T(), s);
  when((first + t.blocks) * t.block > t0 + 1, [&] {
    parallel(s, [&](Index r, Index n) {
      s(r, n) = select((first + n + 1) * t.block <= t0 + r / t.group + 1, s(r, n), -inf);
    });
  });
}

Kernel compression(const CompressionTile& t) {
  return kernel("nsa_compression", [&] {
    Dim B("B"), S("S"), H("H"), scored("scored");
    Tensor Q = input("Q", {B, S, H, t.group, t.dim}, t.type), K = input("K", {B, S, H, t.dim}, t.type);
    Tensor V = input("V", {B, S, H, t.dim}, t.type), O = output("O", {B, S, H, t.group, t.dim}, t.type);
    Tensor LSE = output("LSE", {B, S, H, t.group}, f32), scores = output("scores", {B, S, H, scored}, f32);
    Expr scale = scalar("scale", f32), N = S / t.block;  // scale times log2(e)
    require(scored == S / t.block, "there is a score for every whole block");
    Tensor Kc = workspace("Kc", {B, N, H, t.dim}, t.type), Vc = workspace("Vc", {B, N, H, t.dim}, t.type);
    average_blocks(K, Kc, t);
    average_blocks(V, Vc, t);
    const int rows = t.queries * t.group;
    const GridOptions options{.threads = t.threads,
                              .order = Order::heavy_first([](Index x, Index, Index) { return Expr(x); })};
    grid(ceildiv(S, t.queries), H, B, options, [&](Index x, Index h, Index b) {
      Expr t0 = x * t.queries, steps = ceildiv(min(N, min(S, t0 + t.queries) / t.block), t.blocks);
      Shared q({rows, t.dim}, t.type), by_head = q.reshape({t.queries, t.group, t.dim});
      copy(Q.slice(b, all, h).at(t0), by_head);
      Fragment acc({rows, t.dim}, f32, 0);
      OnlineSoftmax softmax(rows, scale);
      pipelined(steps, {.stages = 2}, [&](Index j) {
        Shared k({t.blocks, t.dim}, t.type), v({t.blocks, t.dim}, t.type);
        copy(Kc.slice(b, all, h).at(j * t.blocks), k);
        copy(Vc.slice(b, all, h).at(j * t.blocks), v);
        Fragment s({rows, t.blocks}, f32, 0);
        multiply_seen(q, k, j * t.blocks, t0, s, t);
        scale_rows(acc, softmax.update(s));
        gemm(s.to(t.type), v, acc);
      });
      softmax.normalize(acc);
      copy(acc.reshape({t.queries, t.group, t.dim}), O.slice(b, all, h).at(t0));
      Fragment lse = softmax.lse();
      copy(lse.reshape({t.queries, t.group}), LSE.slice(b, all, h).at(t0));
      pipelined(steps, {.stages = 2}, [&](Index j) {
        Shared k({t.blocks, t.dim}, t.type);
        copy(Kc.slice(b, all, h).at(j * t.blocks), k);
        Fragment s({rows, t.blocks}, f32, 0);
        multiply_seen(q, k, j * t.blocks, t0, s, t);
        parallel(s, [&](Index r, Index n) {
          s(r, n) = select(lse(r) == -inf, 0, exp2(s(r, n) * scale - lse(r) * log2e));
        });
        Fragment sum = reduce_sum(s.reshape({t.queries, t.group, t.blocks}), 1);
        copy(sum, scores.slice(b, all, h).at(t0, j * t.blocks));
      });
    });
  });
}

Numbers means(const Numbers& x, int block) {
  const auto H = x.shape[1], D = x.shape[2], N = x.shape[0] / block;
  Numbers result({N, H, D});
  each(N, H, D, [&](int n, int h, int d) {
    const double sum = sum_of(block, [&](int i) { return x(n * block + i, h, d); });
    result(n, h, d) = tegula::round_to(bf16, sum / block);
  });
  return result;
}
Data one_batch(const Data& data) {
  Shape shape = data.shape();
  shape.insert(shape.begin(), 1);
  return data.reshape(shape);
}
Wanted one_batch(Numbers exact, DType type, double tolerance) {
  exact.shape.insert(exact.shape.begin(), 1);
  return {std::move(exact), type, tolerance};
}

Prepared compression_call() {
  const CompressionTile t{.group = 16, .dim = 64, .block = 8, .queries = 8, .blocks = 16, .threads = 256};
  const int S = 150, H = 1, N = S / t.block, D = t.dim;
  const double scale = 1 / std::sqrt(D);
  const Data q = normal({S * H, t.group, D}, bf16, 1), k = normal({S, H, D}, bf16, 2),
             v = normal({S, H, D}, bf16, 3);
  const Numbers Q(q), K = means(Numbers(k), t.block), V = means(Numbers(v), t.block);
  Numbers O({S, H, t.group, D}), LSE({S, H, t.group}, -INFINITY), scores({S, H, N});
  each(S, t.group, [&](int token, int g) {
    const int seen = std::min(N, (token + 1) / t.block);
    const auto score = [&](int n) {
      return scale * sum_of(D, [&](int d) { return Q(token, g, d) * K(n, 0, d); });
    };
    const Attended own = attend(seen, D, score, [&](int n, int d) { return V(n, 0, d); });
    LSE(token, 0, g) = own.lse;
    each(D, [&](int d) { O(token, 0, g, d) = own.out[d]; });
    each(seen, [&](int n) { scores(token, 0, n) += std::exp(score(n) - own.lse); });
    // Means after those that the block of queries sees have no score.
    const int last = std::min(S, (token / t.queries + 1) * t.queries) / t.block;
    for (int n = (last + t.blocks - 1) / t.blocks * t.blocks; n < N; ++n) scores(token, 0, n) = NAN;
  });
  return {compression(t),
          {one_batch(q.reshape({S, H, t.group, D})), one_batch(k), one_batch(v), one_batch(O, bf16, 1e-2),
           one_batch(LSE, f32, 1e-3), one_batch(scores, f32, 1e-2), scale * log2_of_e}};
}

}  // namespace

Program nsa_compression() {
  return {"decode",
          "nsa_compression",
          "attention to means of blocks, and the scores that selection of blocks goes by",
          {{"", compression_call}},
          {{"8 tokens of 16 heads", [] { return compression({}); }},
           {"8 tokens of 16 heads, 256 threads", [] { return compression({.threads = 256}); }}}};
}

}  // namespace programs

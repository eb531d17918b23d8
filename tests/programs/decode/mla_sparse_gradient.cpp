// Gradients of sparse prefill with one latent head: of queries, and of latent keys by atomics, as several
// tokens name one key. Features are cut into pieces, so that the sums of a piece of the keys' gradient fit
// the registers beside those of the queries'.
#include "tests/programs/decode/attention.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct GradientTile {
  int heads = 128, latent = 512, rope = 64, piece = 128, top = 2048;
  int block_h = 64, block_k = 64, stages = 1, threads = 256;

  int width() const { return latent + rope; }
  int pieces() const { return latent / piece; }  // of the latent; one more is the rotary part
  int columns(int c) const { return c < pieces() ? piece : rope; }
};

struct GradientInputs {
  GradientTile t;
  Dim B{"B"}, Sq{"Sq"}, Sk{"Sk"};
  Tensor Q, latents, ropes, tokens, O, dO, LSE, dQ, dKV;
  Expr scale;
  Tensor delta;

  explicit GradientInputs(const GradientTile& tile)
      : t(tile),
        Q(input("Q", {B, Sq, t.heads, t.width()}, bf16)),
        latents(input("latents", {B, Sk, t.latent}, bf16)),
        ropes(input("ropes", {B, Sk, t.rope}, bf16)),
        tokens(input("tokens", {B, Sq, t.top}, i32)),
        O(input("O", {B, Sq, t.heads, t.latent}, bf16)),
        dO(input("dO", {B, Sq, t.heads, t.latent}, bf16)),
        LSE(input("LSE", {B, Sq, t.heads}, f32)),
        dQ(output("dQ", {B, Sq, t.heads, t.width()}, bf16)),
        dKV(output("dKV", {B, Sk, t.width()}, f32, {.zero = true})),
        scale(scalar("scale", f32)),
        delta(workspace("delta", {B, Sq, t.heads}, f32)) {}

  // delta = Σ O dO of every row.
  void make_delta() const {
    grid(Sq, B, {.threads = 128}, [&](Index query, Index b) {
      serial(t.heads / 16, [&](Index h) {
        Fragment o({16, t.latent}, f32), d({16, t.latent}, f32);
        copy(O.slice(b, query).at(h * 16), o);
        copy(dO.slice(b, query).at(h * 16), d);
        parallel(o, [&](Index i, Index j) { o(i, j) *= d(i, j); });
        copy(reduce_sum(o), delta.slice(b, query).at(h * 16));
      });
    });
  }
};

// What a block holds: pieces of its queries and of their outputs' gradient, and the sums.
struct Pieces {
  const GradientInputs& in;
  const GradientTile& t;
  Expr query, b, h0;
  std::vector<Shared> q, d_out;
  std::vector<Fragment> dq;
  Fragment lse, delta;

  Pieces(const GradientInputs& inputs, const Expr& token, const Expr& sequence, const Expr& head)
      : in(inputs),
        t(in.t),
        query(token),
        b(sequence),
        h0(head),
        lse({t.block_h}, f32),
        delta({t.block_h}, f32) {
    for (int c = 0; c <= t.pieces(); ++c) {
      q.emplace_back(std::initializer_list<int>{t.block_h, t.columns(c)}, bf16);
      copy(in.Q.slice(b, query).at(h0, c * t.piece), q[c]);
      dq.emplace_back(std::initializer_list<int>{t.block_h, t.columns(c)}, f32, 0);
    }
    for (int c = 0; c < t.pieces(); ++c) {
      d_out.emplace_back(std::initializer_list<int>{t.block_h, t.piece}, bf16);
      copy(in.dO.slice(b, query).at(h0, c * t.piece), d_out[c]);
    }
    copy(in.LSE.slice(b, query).at(h0), lse);
    copy(in.delta.slice(b, query).at(h0), delta);
  }
  std::vector<Shared> keys(const Tensor& list) const {
    std::vector<Shared> k;
    for (int c = 0; c <= t.pieces(); ++c) {
      k.emplace_back(std::initializer_list<int>{t.block_k, t.columns(c)}, bf16);
      const Range columns = range(c * t.piece, (c + 1) * t.piece);
      gather(c < t.pieces() ? in.latents.slice(b, all, columns) : in.ropes.slice(b), list, k[c]);
    }
    return k;
  }
  void step(const Index& j) {
    Tensor list = in.tokens.slice(b, query, range(j * t.block_k, (j + 1) * t.block_k));
    Shared rows({t.block_k}, i32), p({t.block_h, t.block_k}, bf16), ds({t.block_h, t.block_k}, bf16);
    copy(list.at(0), rows);
    const std::vector<Shared> k = keys(list);
    Fragment s({t.block_h, t.block_k}, f32, 0), dp({t.block_h, t.block_k}, f32, 0);
    for (int c = 0; c <= t.pieces(); ++c) gemm(q[c], k[c].T(), s);
    for (int c = 0; c < t.pieces(); ++c) gemm(d_out[c], k[c].T(), dp);
    Expr newest = query + in.Sk - in.Sq;
    parallel(s, [&](Index i, Index n) {
      Expr seen = rows(n) >= 0 && rows(n) <= newest;
      s(i, n) = select(seen, exp(s(i, n) * in.scale - lse(i)), 0);
      dp(i, n) = s(i, n) * (dp(i, n) - delta(i)) * in.scale;
    });
    copy(s, p);
    copy(dp, ds);
    for (int c = 0; c <= t.pieces(); ++c) {
      gemm(ds, k[c], dq[c]);
      Fragment dk({t.block_k, t.columns(c)}, f32, 0);
      gemm(ds.T(), q[c], dk);
      if (c < t.pieces()) gemm(p.T(), d_out[c], dk);
      parallel(dk, [&](Index n, Index d) {
        Expr row = rows(n);
        when(row >= 0 && row <= newest, [&] { atomic_add(in.dKV(b, row, c * t.piece + d), dk(n, d)); });
      });
    }
  }
};

Kernel sparse_gradient(const GradientTile& t) {
  return kernel("mla_sparse_gradient", [&] {
    GradientInputs in(t);
    in.make_delta();
    grid(t.heads / t.block_h, in.Sq, in.B, {.threads = t.threads}, [&](Index x, Index query, Index b) {
      Pieces own(in, query, b, x * t.block_h);
      pipelined(t.top / t.block_k, {.stages = t.stages}, [&](Index j) { own.step(j); });
      for (int c = 0; c <= t.pieces(); ++c)
        copy(own.dq[c], in.dQ.slice(b, query).at(x * t.block_h, c * t.piece));
    });
  });
}

// What the formula has of one token and head.
struct TokenCall {
  const GradientTile& t;
  Numbers Q, K, dO;
  std::vector<std::vector<int>> keys;  // of every token
  double scale;

  double score(int token, int h, int i) const {
    return scale * sum_of(t.width(), [&](int d) { return Q(token, h, d) * K(keys[token][i], d); });
  }
  Attended forward(int token, int h) const {
    return attend(
        static_cast<int>(keys[token].size()), t.latent, [&](int i) { return score(token, h, i); },
        [&](int i, int d) { return K(keys[token][i], d); });
  }
  void add_gradients(int token, int h, const Numbers& O, double lse, Numbers& dQ, Numbers& dKV) const {
    const double delta = sum_of(t.latent, [&](int d) { return O(token, h, d) * dO(token, h, d); });
    each(static_cast<std::int64_t>(keys[token].size()), [&](int i) {
      const int key = keys[token][i];
      const double p = std::exp(score(token, h, i) - lse);
      const double dp = sum_of(t.latent, [&](int d) { return dO(token, h, d) * K(key, d); });
      const double ds = p * (dp - delta) * scale;
      each(t.width(), [&](int d) {
        dQ(token, h, d) += ds * K(key, d);
        dKV(key, d) += ds * Q(token, h, d) + (d < t.latent ? p * dO(token, h, d) : 0);
      });
    });
  }
};

Prepared gradient_call() {
  const GradientTile t{.heads = 64, .latent = 128, .rope = 64, .piece = 64, .top = 64};
  const int Sq = 2, Sk = 70, width = t.width();
  const Data q = normal({Sq, t.heads, width}, bf16, 1), kv = normal({Sk, width}, bf16, 2);
  const Data dout = normal({Sq, t.heads, t.latent}, bf16, 5),
             lists = integers({Sq, t.top}, i32, 3, -20, Sk + 20);
  TokenCall call{t, Numbers(q), Numbers(kv), Numbers(dout), {}, 1 / std::sqrt(width)};
  const Numbers entries(lists);
  each(Sq, [&](int token) {
    call.keys.emplace_back();
    each(t.top, [&](int i) {
      const int key = static_cast<int>(entries(token, i));
      if (key >= 0 && key <= token + Sk - Sq) call.keys.back().push_back(key);
    });
  });
  Numbers O({Sq, t.heads, t.latent}), LSE({Sq, t.heads}), dQ(call.Q.shape), dKV(call.K.shape);
  each(Sq, t.heads, [&](int token, int h) {
    const Attended own = call.forward(token, h);
    each(t.latent, [&](int d) { O(token, h, d) = tegula::round_to(bf16, own.out[d]); });
    LSE(token, h) = own.lse;
  });
  each(Sq, t.heads, [&](int token, int h) { call.add_gradients(token, h, O, LSE(token, h), dQ, dKV); });
  dQ.shape.insert(dQ.shape.begin(), 1), dKV.shape.insert(dKV.shape.begin(), 1);
  const Data rows = kv.reshape({1, Sk, width});
  return {sparse_gradient(t),
          {q.reshape({1, Sq, t.heads, width}), rows.slice(2, 0, t.latent), rows.slice(2, t.latent, width),
           lists.reshape({1, Sq, t.top}), O.to(bf16).reshape({1, Sq, t.heads, t.latent}),
           dout.reshape({1, Sq, t.heads, t.latent}), LSE.to(f32).reshape({1, Sq, t.heads}),
           Wanted{dQ, bf16, 2e-2}, Wanted{dKV, f32, 2e-2}, call.scale}};
}

}  // namespace

Program mla_sparse_gradient() {
  return {"decode",
          "mla_sparse_gradient",
          "gradients of tokens' queries and of the latent keys that their lists name",
          {{"", gradient_call}},
          {{"pieces of 128, 256 threads", [] { return sparse_gradient({}); }}}};
}

}  // namespace programs

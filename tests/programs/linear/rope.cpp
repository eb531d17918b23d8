// Rotary position embedding of queries and keys in one launch: the halves of the features are rotated.
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct RopeTile {
  int dim, rows, heads;
  DType type = bf16;
};
struct Angles {
  Tensor cosine, sine;
};

void rotate(const Tensor& from, const Tensor& to, const Angles& angles, const Expr& row, const Expr& head,
            const RopeTile& t) {
  const int half = t.dim / 2;
  Fragment x({t.rows, t.heads, half}, f32), y({t.rows, t.heads, half}, f32);
  Fragment c({t.rows, half}, f32), s({t.rows, half}, f32);
  copy(from.at(row, head), x);
  copy(from.at(row, head, half), y);
  copy(angles.cosine.at(row), c);
  copy(angles.sine.at(row), s);
  parallel(x, [&](Index i, Index h, Index j) {
    Expr a = x(i, h, j), b = y(i, h, j);
    x(i, h, j) = a * c(i, j) - b * s(i, j);
    y(i, h, j) = b * c(i, j) + a * s(i, j);
  });
  copy(x, to.at(row, head));
  copy(y, to.at(row, head, half));
}

Kernel rope_of(const RopeTile& t) {
  return kernel("rope", [&] {
    Dim B("B"), S("S"), HQ("HQ"), HK("HK");
    Tensor Q = input("Q", {B, S, HQ, t.dim}, t.type), K = input("K", {B, S, HK, t.dim}, t.type);
    const Angles angles{input("cosine", {S, t.dim / 2}, f32), input("sine", {S, t.dim / 2}, f32)};
    Tensor QR = output("QR", {B, S, HQ, t.dim}, t.type), KR = output("KR", {B, S, HK, t.dim}, t.type);
    Expr of_q = ceildiv(HQ, t.heads);
    grid(of_q + ceildiv(HK, t.heads), ceildiv(S, t.rows), B, [&](Index x, Index y, Index b) {
      when(x < of_q, [&] {
        rotate(Q.slice(b), QR.slice(b), angles, y * t.rows, x * t.heads, t);
      }).otherwise([&] { rotate(K.slice(b), KR.slice(b), angles, y * t.rows, (x - of_q) * t.heads, t); });
    });
  });
}

Numbers rotated(const Data& tokens, const Numbers& cosine, const Numbers& sine) {
  const Numbers x(tokens);
  Numbers y = x;
  const auto half = x.shape[3] / 2;
  each(x.shape[0], x.shape[1], x.shape[2], [&](int b, int i, int h) {
    each(half, [&](int j) {
      const double low = x(b, i, h, j), high = x(b, i, h, j + half);
      y(b, i, h, j) = low * cosine(i, j) - high * sine(i, j);
      y(b, i, h, j + half) = high * cosine(i, j) + low * sine(i, j);
    });
  });
  return y;
}

Prepared rope_call(int tokens, int heads, int kv_heads, int dim) {
  const Data q = normal({1, tokens, heads, dim}, bf16, 1), k = normal({1, tokens, kv_heads, dim}, bf16, 2);
  const Data c = normal({tokens, dim / 2}, f32, 3), s = normal({tokens, dim / 2}, f32, 4);
  const Numbers cosine(c), sine(s);
  return {rope_of({dim, 2, 2}),
          {q, k, c, s, Wanted{rotated(q, cosine, sine), bf16}, Wanted{rotated(k, cosine, sine), bf16}}};
}

}  // namespace

Program rope() {
  return {"linear",
          "rope",
          "rotary embedding of queries and keys in one launch",
          {{"", [] { return rope_call(5, 3, 2, 16); }}},
          {{"8 rows of 8 heads of 128", [] {
              return rope_of({128, 8, 8});
            }}}};
}

}  // namespace programs

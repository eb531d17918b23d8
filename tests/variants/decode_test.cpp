// Decode of one token with grouped heads.
#include <functional>

#include "ops/pieces/softmax.hpp"
#include "tests/variants/variants.hpp"

namespace variants::decode_variants {
namespace {

using namespace tegula::lang;
using tegula::ops::OnlineSoftmax;
using tegula::ops::scale_rows;

constexpr int rows = 64, dim = 128, block = 64, group = 8;

struct Inputs {
  Dim B{"B"}, H{"H"}, S{"S"};
  Tensor Q = input("Q", {B, H, group, dim}, bf16), K = input("K", {B, S, H, dim}, bf16);
  Tensor V = input("V", {B, S, H, dim}, bf16), lengths = input("lengths", {B}, i32);
  Tensor O = output("O", {B, H, group, dim}, bf16);
  Expr scale = scalar("scale", f32);
};
struct Tiles {
  Shared q{{rows, dim}, bf16};
  Fragment acc{{rows, dim}, f32, 0};
  OnlineSoftmax softmax;
  explicit Tiles(const Expr& scale) : softmax(rows, scale) {}
};
using Step = std::function<void(const Inputs&, Tiles&, const Index& j, const Expr& b, const Expr& h)>;

Kernel decode(const Step& step, bool steps_from_length = true) {
  return kernel("decode", [&] {
    Inputs in;
    grid(in.H, in.B, {.threads = 128}, [&](Index h, Index b) {
      Tiles own(in.scale);
      copy(in.Q.slice(b, h).at(0), own.q);
      Expr steps = ceildiv(steps_from_length ? in.lengths(b) : Expr(in.S), block);
      pipelined(steps, {.stages = 3}, [&](Index j) { step(in, own, j, b, h); });
      own.softmax.normalize(own.acc);
      copy(own.acc, in.O.slice(b, h).at(0));
    });
  });
}

void mask(Fragment& s, const Expr& left) {
  parallel(s, [&](Index i, Index c) { s(i, c) = select(c < left, s(i, c), -inf); });
}

// Both tiles are brought first, and the last block alone is masked.
void loads_first(const Inputs& in, Tiles& own, const Index& j, const Expr& b, const Expr& h) {
  Shared k({block, dim}, bf16), v({block, dim}, bf16);
  copy(in.K.slice(b, all, h).at(j * block), k);
  copy(in.V.slice(b, all, h).at(j * block), v);
  Fragment s({rows, block}, f32, 0);
  gemm(own.q, k.T(), s);
  Expr left = in.lengths(b) - j * block;
  when(left < block, [&] { mask(s, left); });
  scale_rows(own.acc, own.softmax.update(s));
  gemm(s.to(bf16), v, own.acc);
}
void values_loaded_late(const Inputs& in, Tiles& own, const Index& j, const Expr& b, const Expr& h) {
  Shared k({block, dim}, bf16), v({block, dim}, bf16);
  copy(in.K.slice(b, all, h).at(j * block), k);
  Fragment s({rows, block}, f32, 0);
  gemm(own.q, k.T(), s);
  Expr left = in.lengths(b) - j * block;
  when(left < block, [&] { mask(s, left); });
  scale_rows(own.acc, own.softmax.update(s));
  copy(in.V.slice(b, all, h).at(j * block), v);
  gemm(s.to(bf16), v, own.acc);
}
void masked_always(const Inputs& in, Tiles& own, const Index& j, const Expr& b, const Expr& h) {
  Shared k({block, dim}, bf16), v({block, dim}, bf16);
  copy(in.K.slice(b, all, h).at(j * block), k);
  copy(in.V.slice(b, all, h).at(j * block), v);
  Fragment s({rows, block}, f32, 0);
  gemm(own.q, k.T(), s);
  mask(s, in.lengths(b) - j * block);
  scale_rows(own.acc, own.softmax.update(s));
  gemm(s.to(bf16), v, own.acc);
}
// The scores are cleared by an operation of their own, the weights are a tile of bf16.
void tiles_made_by_hand(const Inputs& in, Tiles& own, const Index& j, const Expr& b, const Expr& h) {
  Shared k({block, dim}, bf16), v({block, dim}, bf16);
  const Tensor keys = in.K.slice(b, all, h), values = in.V.slice(b, all, h);
  copy(keys.at(j * block, 0), k);
  copy(values.at(j * block, 0), v);
  Fragment s({rows, block}, f32), weights({rows, block}, bf16);
  clear(s);
  gemm(own.q, k.T(), s);
  mask(s, in.lengths(b) - j * block);
  Fragment factor = own.softmax.update(s);
  parallel(own.acc, [&](Index i, Index d) { own.acc(i, d) *= factor(i); });
  copy(s, weights);
  gemm(weights, v, own.acc);
}

TEST(DecodeInSeveralWays, IsPlannedAlike) {
  expect_planned_alike({{"loads first", decode(loads_first)},
                        {"values loaded late", decode(values_loaded_late)},
                        {"masked always", decode(masked_always)},
                        {"tiles made by hand", decode(tiles_made_by_hand)},
                        {"all blocks of the cache", decode(masked_always, false)}});
}

}  // namespace
}  // namespace variants::decode_variants

// Attention with a softmax, of 128 queries of a block, under a causal mask.
#include <functional>

#include "ops/pieces/softmax.hpp"
#include "tests/variants/variants.hpp"

namespace variants::attention_variants {
namespace {

using namespace tegula::lang;
using tegula::ops::OnlineSoftmax;
using tegula::ops::scale_rows;

constexpr int rows = 128, dim = 128, block = 128;

struct Inputs {
  Dim S{"S"}, H{"H"};
  Tensor Q = input("Q", {S, H, dim}, bf16), K = input("K", {S, H, dim}, bf16),
         V = input("V", {S, H, dim}, bf16);
  Tensor O = output("O", {S, H, dim}, bf16);
  Expr scale = scalar("scale", f32);
};
struct Step {
  const Inputs& in;
  const Index &j, &x, &h;
  const Shared& q;
  Fragment& sum;
  OnlineSoftmax& softmax;

  Shared tile(const Tensor& from) const {
    Shared result({block, dim}, bf16);
    copy(from.slice(all, h).at(j * block), result);
    return result;
  }
  void mask(Fragment& s) const {
    parallel(s, [&](Index i, Index c) { s(i, c) = select(j * block + c <= x * rows + i, s(i, c), -inf); });
  }
};
using Way = std::function<void(const Step&)>;

Kernel attention(const Way& way) {
  return kernel("attention", [&] {
    Inputs in;
    grid(ceildiv(in.S, rows), in.H, [&](Index x, Index h) {
      Shared q({rows, dim}, bf16);
      copy(in.Q.slice(all, h).at(x * rows), q);
      Fragment sum({rows, dim}, f32, 0);
      OnlineSoftmax softmax(rows, in.scale);
      pipelined(x + 1, {.stages = 2}, [&](Index j) { way({in, j, x, h, q, sum, softmax}); });
      softmax.normalize(sum);
      copy(sum, in.O.slice(all, h).at(x * rows));
    });
  });
}

void loads_first(const Step& t) {
  Shared k = t.tile(t.in.K), v = t.tile(t.in.V);
  Fragment s({rows, block}, f32, 0);
  gemm(t.q, k.T(), s);
  when(t.j == t.x, [&] { t.mask(s); });
  scale_rows(t.sum, t.softmax.update(s));
  gemm(s.to(bf16), v, t.sum);
}
void values_loaded_late(const Step& t) {
  Shared k = t.tile(t.in.K);
  Fragment s({rows, block}, f32, 0);
  gemm(t.q, k.T(), s);
  when(t.j == t.x, [&] { t.mask(s); });
  scale_rows(t.sum, t.softmax.update(s));
  Shared v = t.tile(t.in.V);
  gemm(s.to(bf16), v, t.sum);
}
void masked_always(const Step& t) {
  Shared k = t.tile(t.in.K), v = t.tile(t.in.V);
  Fragment s({rows, block}, f32, 0);
  gemm(t.q, k.T(), s);
  t.mask(s);
  scale_rows(t.sum, t.softmax.update(s));
  gemm(s.to(bf16), v, t.sum);
}
void mask_by_position(const Step& t) {
  Shared k = t.tile(t.in.K), v = t.tile(t.in.V);
  Fragment s({rows, block}, f32);
  clear(s);
  gemm(t.q, k.T(), s);
  when((t.j + 1) * block > t.x * rows + 1, [&] { t.mask(s); });
  scale_rows(t.sum, t.softmax.update(s));
  gemm(s.to(bf16), v, t.sum);
}
void weights_in_a_tile(const Step& t) {
  Shared k = t.tile(t.in.K), v = t.tile(t.in.V);
  Fragment s({rows, block}, f32, 0), weights({rows, block}, bf16);
  gemm(t.q, k.T(), s);
  when(t.j == t.x, [&] { t.mask(s); });
  Fragment factor = t.softmax.update(s);
  parallel(t.sum, [&](Index i, Index d) { t.sum(i, d) *= factor(i); });
  copy(s, weights);
  gemm(weights, v, t.sum);
}
void weights_by_a_loop(const Step& t) {
  Shared v = t.tile(t.in.V), k = t.tile(t.in.K);
  Fragment s({rows, block}, f32, 0), weights({rows, block}, bf16);
  gemm(t.q, k.T(), s);
  when(t.j == t.x, [&] { t.mask(s); });
  Fragment factor = t.softmax.update(s);
  parallel(weights, [&](Index i, Index c) { weights(i, c) = s(i, c); });
  parallel(t.sum, [&](Index i, Index d) { t.sum(i, d) = t.sum(i, d) * factor(i); });
  gemm(weights, v, t.sum);
}

TEST(AttentionInSeveralWays, IsPlannedAlike) {
  expect_planned_alike({{"loads first", attention(loads_first)},
                        {"values loaded late", attention(values_loaded_late)},
                        {"masked always", attention(masked_always)},
                        {"mask by position", attention(mask_by_position)},
                        {"weights in a tile", attention(weights_in_a_tile)},
                        {"weights by a loop", attention(weights_by_a_loop)}});
}

}  // namespace
}  // namespace variants::attention_variants

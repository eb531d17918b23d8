// What the programs with one latent head share: their tiles, what a block of queries does with keys, and the
// formula.
#pragma once
#include "tests/programs/decode/attention.hpp"

namespace programs {

struct MlaTile {
  int heads = 128, latent = 512, rope = 64, page = 64;
  int block_h = 64, block_k = 64, stages = 2, threads = 0;
  int splits = 1;
  bool clip = false;  // rows past the end of a request read as zeros, whatever its last page holds there
};

// The tiles of a block's queries, and what becomes of them.
struct Latents {
  const MlaTile& t;
  Shared latent, rope;
  Fragment acc;
  OnlineSoftmax softmax;

  // Q [heads, latent + rope] from head h0 on.
  Latents(const MlaTile& tile, const Tensor& Q, const Expr& h0, const Expr& scale)
      : t(tile),
        latent({t.block_h, t.latent}, bf16),
        rope({t.block_h, t.rope}, bf16),
        acc({t.block_h, t.latent}, f32, 0),
        softmax(t.block_h, scale) {
    copy(Q.at(h0, 0), latent);
    copy(Q.at(h0, t.latent), rope);
  }
  // Tiles of keys; mask(scores) hides what is no key.
  template <class Mask>
  void attend(const Shared& k_latent, const Shared& k_rope, Mask mask) {
    Fragment s({t.block_h, t.block_k}, f32, 0);
    gemm(latent, k_latent.T(), s);
    gemm(rope, k_rope.T(), s);
    mask(s);
    scale_rows(acc, softmax.update(s));
    gemm(s.to(bf16), k_latent, acc);
  }
  // Elements are stored by their threads: without buffers of the copy engine there is room for a ring of two.
  void store(const Tensor& to) {
    softmax.normalize(acc);
    parallel(acc, [&](Index h, Index d) { to(h, d) = acc(h, d); });
  }
};

// Results of one token, whose heads' queries are rows of Q from `first_row` on; key(i) is the row of K of its
// i-th key.
template <class Key>
void attend_token(const Numbers& Q, int token, const Numbers& K, int keys, Key key, double scale, Numbers& O,
                  Numbers& LSE) {
  const int heads = static_cast<int>(Q.shape[1]), width = static_cast<int>(Q.shape[2]);
  const int latent = static_cast<int>(O.shape[2]);
  each(heads, [&](int h) {
    const auto score = [&](int i) {
      return scale * sum_of(width, [&](int d) { return Q(token, h, d) * K(key(i), d); });
    };
    const Attended own = attend(keys, latent, score, [&](int i, int d) { return K(key(i), d); });
    each(latent, [&](int d) { O(token, h, d) = own.out[d]; });
    LSE(token, h) = own.lse;
  });
}

}  // namespace programs

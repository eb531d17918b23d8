#include "ops/pieces/score_cap.hpp"

namespace tegula::ops {

using namespace lang;

// Weights depend on how far a score is off, not on how large it is: of this cap, 2^-21 is half the unit of
// rounding of a weight in f16.
constexpr float widest_usual_cap = 512;

ScoreCap score_cap(float softcap) {
  if (softcap <= 0) return ScoreCap::none;
  return softcap <= widest_usual_cap ? ScoreCap::usual : ScoreCap::wide;
}

Expr share_of_cap(const Expr& score, const Expr& scale, ScoreCap cap, DType compute) {
  if (compute == f32 || cap == ScoreCap::wide) return tanh(score * scale);
  // The difference has few digits of a small share.
  return 1 - 2 * rcp(1 + exp2(score * (scale * (2 * log2e))));
}

void cap_scores(Fragment& scores, const Expr& scale, ScoreCap cap, DType compute) {
  if (cap == ScoreCap::none) return;
  parallel(scores, [&](Index i, Index j) { scores(i, j) = share_of_cap(scores(i, j), scale, cap, compute); });
}

}  // namespace tegula::ops

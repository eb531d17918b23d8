// Labels of a tile's rows of logits.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

inline void check_labels(const lang::Expr& are_right) {
  lang::assert_that(are_right, "a label is neither a class nor ignore_index");
}

// Labels of so many rows, and the factors of their losses: 0 of rows that are ignored.
struct TileLabels {
  lang::Fragment of, factors;

  // Blocks that are spread over CTAs have no assertions: they do not check.
  TileLabels(int rows, int classes, const lang::Tensor& labels, const lang::Expr& row,
             const lang::Expr& ignored, bool checks = true)
      : of(lang::load(labels.at(row), {rows})), factors({rows}, f32) {
    lang::Fragment wrong({rows}, i32);
    lang::parallel(of, [&](lang::Index i) {
      lang::Expr label = of(i), counts = lang::i64(label) != ignored;
      factors(i) = lang::select(counts, 1.f, 0.f);
      wrong(i) = lang::select(counts && (label < 0 || label >= classes), 1, 0);
    });
    if (checks) check_labels(lang::reduce_max(wrong).scalar() == 0);
  }
  // One logit of each row is read again: to look for it among all would take a reduction.
  lang::Fragment logits(const lang::Tensor& all, const lang::Expr& row, int classes) const {
    return lang::map(factors, [&](lang::Index i) {
      return lang::f32(all(lang::min(row + i, all.extent(0) - 1), lang::clamp(of(i), 0, classes - 1)));
    });
  }
};

}  // namespace tegula::ops

// Splits of the keys, each computed by its own blocks, and the merge of their results (as in Flash-Decoding,
// Dao et al. 2023), so that a few queries of a long sequence keep a whole GPU busy.
#pragma once
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

inline constexpr int most_splits = 64;

class SplitResults {
 public:
  // For `tokens` queries of all sequences.
  SplitResults(const lang::Expr& tokens, const lang::Expr& heads, const lang::Expr& splits, int dim_v);

  // The tiles of keys of a split.
  lang::Range steps(const lang::Range& all, const lang::Expr& split) const {
    return steps(all, split, splits_);
  }
  static lang::Range steps(const lang::Range& all, const lang::Expr& split, const lang::Expr& splits);
  // What the split finds for rows and heads of a block, its softmax over its own keys: [rows, (heads,) d_v],
  // and lse [(heads,) rows]. Without a key: 0 and −∞.
  lang::Tensor out(const lang::Range& rows, const lang::Subscript& heads, const lang::Expr& split) const;
  lang::Tensor lse(const lang::Range& rows, const lang::Subscript& heads, const lang::Expr& split) const;

  // The row of a head over all splits: `out` [d_v] and the lse, which is returned. `sink`: a logit more
  // that has no value.
  lang::Expr merge(const lang::Expr& row, const lang::Expr& head, const std::optional<lang::Expr>& sink,
                   const lang::Tensor& out) const {
    return merge(row, head, lang::range(0, splits_), sink, out);
  }
  // The same over some splits.
  lang::Expr merge(const lang::Expr& row, const lang::Expr& head, const lang::Range& own,
                   const std::optional<lang::Expr>& sink, const lang::Tensor& out) const;

 private:
  lang::Expr splits_;
  int dim_v_;
  lang::Tensor out_, lse_;
};

}  // namespace tegula::ops

// Sums over rows that are read in pieces, for norms.
#pragma once
#include <optional>

#include "ops/pieces/rows.hpp"

namespace tegula::ops {

// The pieces of a row of `features`.
struct PiecesOfRow {
  const LongRows& c;
  lang::Expr features;

  lang::Expr count() const { return lang::ceildiv(features, c.piece); }
  // body(number of the piece, first feature), from the beginning or from the end.
  template <class Body>
  void each(const Body& body) const {
    lang::pipelined(count(), {.stages = c.stages()}, [&](lang::Index n) { body(n, n * c.piece); });
  }
  template <class Body>
  void each_from_the_end(const Body& body) const {
    lang::pipelined(count(), {.stages = c.stages()}, [&](lang::Index n) { body((count() - 1 - n) * c.piece); });
  }
  lang::Fragment load(const lang::Tensor& row, const lang::Expr& first) const {
    return lang::load(row.at(first), {c.piece}, f32);
  }
};

// What is known of a row once it has been read: the mean is 0 where rows are not centred.
struct RowTotals {
  lang::Expr mean, squares;    // of the row, and of what it is above its mean
  lang::Expr given, products;  // sums of g, and of g times what the row is above its mean
};

// Statistics of each column of the pieces, joined when the row is over. They count from the column's first
// element: the row's own variance holds its distance from the mean, so that squares which cancel are no larger
// than what is asked for.
class RowStatistics {
 public:
  RowStatistics(const PiecesOfRow& row, bool centred, bool of_gradient);

  // g is 0 beyond the end of the row.
  void add(const lang::Expr& number, const lang::Expr& first, const lang::Fragment& x,
           const lang::Fragment* g = nullptr);
  RowTotals total();

 private:
  lang::Expr joined_mean();

  const PiecesOfRow& row_;
  bool centred_;
  lang::Fragment squares_;
  std::optional<lang::Fragment> base_, sum_, given_, products_;
};

}  // namespace tegula::ops

// The order in which a grid takes lists: the longest first, so that its blocks end at about the same time.
#pragma once
#include <functional>

#include "tegula/lang.hpp"

namespace tegula::ops {

class LongestFirst {
 public:
  // Every head has an order of its own of so many lists.
  using Length = std::function<lang::Expr(const lang::Expr& head, const lang::Expr& list)>;
  LongestFirst(const lang::Expr& heads, const lang::Expr& lists, Length length);

  void record_grid() const;

  // The list that is taken as the n-th; of equally long ones that of the lower number first.
  lang::Expr list(const lang::Expr& head, const lang::Expr& n) const { return order_(head, n); }

 private:
  lang::Expr heads_, lists_;
  Length length_;
  lang::Tensor order_;
};

}  // namespace tegula::ops

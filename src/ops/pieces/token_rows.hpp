// Rows of listed tokens, for GPU programs.
#pragma once
#include <functional>
#include <vector>

#include "tegula/lang.hpp"

namespace tegula::ops {

// The tokens of a step of a loop.
class TokenRows {
 public:
  using Token = std::function<lang::Expr(const lang::Expr& i)>;
  // Below so many rows a token, the copy engine is slower than threads.
  static bool by_copy_engine(int pack) { return pack >= 8; }
  // token(i) is the number of the i-th of `tokens` tokens, which have `pack` rows each.
  TokenRows(int tokens, int pack, const Token& token);

  // `from` is [all tokens, heads, features], or [all tokens, features] with a row for each token; what it has
  // not reads as zeros.
  void load(const lang::Tensor& from, lang::Shared& to) const;

 private:
  int tokens_;
  Token token_;
  std::vector<lang::Expr> numbers_;  // where the copy engine brings the rows
};

}  // namespace tegula::ops

// The tokens and the compressed entries of a sequence, for programs.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// Windows of `length` tokens that begin at multiples of `stride`.
struct Windows {
  lang::Expr length, stride;

  // Whole ones of so many tokens.
  lang::Expr among(const lang::Expr& tokens) const {
    return lang::max(lang::floordiv(tokens - length, stride) + 1, 0);
  }
  // The first that ends after a token, and one past the last that begins before one.
  lang::Expr ending_behind(const lang::Expr& token) const {
    return lang::max(lang::floordiv(token - length, stride) + 1, 0);
  }
  lang::Expr beginning_before(const lang::Expr& token) const { return lang::ceildiv(token, stride); }
};

// Sequence b of a batch, or of packed sequences where there are fences, which are in one batch: the entries
// of one that begins at token t stand from t / stride on.
struct CompressedSequence {
  lang::Expr batch;
  lang::Range tokens, entries;

  lang::Expr length() const { return tokens.end - tokens.begin; }
  // Checks a packed sequence, whose length the caller promises.
  void check(const lang::Expr& longest) const {
    lang::assert_that(length() <= longest, "a sequence has more tokens than max_seqlen");
  }
  static CompressedSequence of_batch(const lang::Expr& b, const lang::Expr& tokens,
                                     const lang::Expr& entries) {
    return {b, lang::range(0, tokens), lang::range(0, entries)};
  }
  static CompressedSequence packed(const lang::Tensor& fences, const lang::Expr& b,
                                   const lang::Expr& stride) {
    lang::Expr begin = fences(b), end = fences(b + 1);
    return {lang::Expr(0), lang::range(begin, end), lang::range(begin / stride, end / stride)};
  }
};

}  // namespace tegula::ops

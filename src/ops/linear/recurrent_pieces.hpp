// What the recurrence token by token and its gradient share.
#pragma once
#include "ops/linear/recurrent.hpp"

namespace tegula::ops {

// The parameters that both have.
struct RecurrentInputs {
  const RecurrentKernel& c;
  Sequences s{c.packed};
  lang::Dim key_heads{"key_heads"}, heads{"heads"};
  LazyDim sequences{"sequences"};
  lang::Tensor q, k, v, g, g_gamma, beta, start;
  lang::Expr scale;

  explicit RecurrentInputs(const RecurrentKernel& kernel);

  int features() const { return (c.d + 15) / 16 * 16; }
  lang::Extents states() const { return {sequences, heads, c.d, c.d_v}; }
  // Tensors of a head or of a key head, [tokens, …].
  lang::Tensor of_key_head(const lang::Tensor& t, const lang::Expr& n, const lang::Expr& h) const {
    return s.head(t, n, h / (lang::Expr(heads) / key_heads));
  }
  bool fades() const { return c.g || c.g_gamma; }
};

// A token of a head, for columns of values from `column` on. All is loaded before threads wait for each
// other, so that they wait for memory once.
class RecurrentToken {
 public:
  lang::Fragment q, k, v;  // v of the first columns

  RecurrentToken(const RecurrentInputs& inputs, const lang::Expr& n, const lang::Expr& h, const lang::Expr& t,
                 const lang::Expr& column);
  // q and k by their norms, if they are wanted so. Gates of features become decays. Sums and the largest gate
  // meet at once.
  void prepare();
  // What a state fades by: the decay of a head's gates, to be asked for once, or of features. None fades by
  // default.
  lang::Expr decay() const;
  void fade(lang::Fragment& state, const lang::Expr& decay) const;
  // What is written of the values: with the delta rule a share of what differs from `seen`.
  void find(const lang::Fragment& state);
  void write(lang::Fragment& state) const;
  lang::Expr share() const { return *share_; }
  // Values of other columns.
  lang::Fragment values(const lang::Expr& column) const { return values(in_, n_, h_, t_, column); }

 private:
  static lang::Fragment values(const RecurrentInputs& in, const lang::Expr& n, const lang::Expr& h,
                               const lang::Expr& t, const lang::Expr& column);

  const RecurrentInputs& in_;
  lang::Expr n_, h_, t_;
  std::optional<lang::Fragment> gates_;
  std::optional<lang::Var> share_;
};

// Sums of state · x over features, for each column of values.
lang::Fragment columns_with(const lang::Fragment& state, const lang::Fragment& x);

}  // namespace tegula::ops

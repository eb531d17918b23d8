// Building blocks of the backward programs of attention.
#pragma once
#include <functional>
#include <optional>

#include "ops/pieces/score_cap.hpp"
#include "ops/pieces/views.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// Whether a call has scores so large that the lse, rounded to f32, no longer tells the largest weight of a
// row: from 2^14 on, times log2(e). Their rows count with an lse that is less by a few units of rounding, and
// weights above 1 become 1. A row with one key that outweighs all others then has its gradients, whatever its
// scores.
class LargeScores {
 public:
  // Declares a workspace, which a grid before those that ask must write.
  LargeScores();
  // The base of the weights for lse · log2(e).
  static lang::Expr base(const lang::Expr& scaled_lse);
  void note(const lang::Fragment& bases) const;
  // Notes the delta_rows rows from `first` on of an lse vector [tokens], if no earlier grid computes bases.
  void note(const lang::Tensor& lse, const lang::Expr& first) const;
  // Reads it, here.
  lang::Expr any() const;

 private:
  lang::Tensor flag_;
};

// How a tile of raw scores becomes weights and gradients. Tiles have queries as rows or as columns.
struct ScoreGradient {
  lang::Expr scale;               // of raw scores, with log2(e) (with a cap: over the cap), as in the forward
  std::optional<lang::Expr> cap;  // scores became cap · tanh(scale · raw)
  const LargeScores& large;
  ScoreCap kind_of_cap = ScoreCap::none;
  DType compute = f32;  // of what is multiplied

  // A value for the score (i, j).
  using Of = std::function<lang::Expr(const lang::Expr& i, const lang::Expr& j)>;
  using Slopes = std::optional<lang::Fragment>;  // of the cap
  // What becomes of a weight: 0 where the query does not see the key.
  struct Mask {
    std::optional<lang::Expr> partial;  // whether there is anything to do
    std::function<lang::Expr(const lang::Expr& i, const lang::Expr& j, const lang::Expr& weight)> weigh;
  };
  // `scores` become weights; see write_delta for base. `bounded`: whether weights may exceed 1 and must not.
  void weigh(lang::Fragment& scores, Slopes& slopes, const Of& base, const Mask& mask,
             const lang::Expr& bounded) const;
  // `products` of dout and values become the gradients of the raw scores, but for factor().
  void differentiate(lang::Fragment& products, const lang::Fragment& weights, const Slopes& slopes,
                     const Of& delta) const;
  lang::Expr factor() const;
};

// The tiles of both passes.
struct GradientTiles {
  DType compute = f32;
  int dim = 64, dim_v = 64;
  int pack = 1, queries = 64, keys = 64;
  // Results are stored by the threads that have them: with no room for the copy engine's, two blocks of one
  // warp group fit a processor.
  bool direct = false;
  // The product of values' gradients runs while warp groups wait for each other's gradients of scores,
  // instead of while they are formed.
  bool late_values = false;
  // What a step contributes to the gradients of queries is multiplied out under the products of the next one,
  // which so need not wait until it is passed on.
  bool late_contributions = false;

  int rows() const { return queries * pack; }
};

// Views of a query head, [tokens, features] and [tokens], or of a group of them, [tokens, pack, features],
// [pack, tokens] and of delta and base [tokens · pack].
struct HeadRows {
  lang::Tensor dout, out, lse, delta, base;
  std::optional<lang::Tensor> dlse;
  int dim_v = 0;
  const LargeScores& large;
};

// The gradient of a tile of queries: rows are queries.
class QueryGradient {
 public:
  // Of the queries from `first` on of q [tokens, (pack,) d].
  QueryGradient(const GradientTiles& tiles, const ScoreGradient& gradient, const lang::Tensor& q,
                const lang::Expr& first);

  // What belongs to one result of the forward. Row r of a tile is query first + r / pack of head r % pack.
  class Branch {
   public:
    // dout [tokens, (pack,) dv], base and delta [(pack,) tokens].
    Branch(const GradientTiles& tiles, const lang::Tensor& dout, const lang::Tensor& base,
           const lang::Tensor& delta, const lang::Expr& first);
    // Forms base and delta as write_delta does, and leaves them to the pass over keys. For calls all of whose
    // queries are in some tile: of packed sequences not all need be.
    Branch(const GradientTiles& tiles, const HeadRows& rows, const lang::Expr& first);

   private:
    friend class QueryGradient;
    lang::Shared dout_;
    lang::Fragment base_, delta_;
  };
  // Told raw scores and their gradients but for factor().
  using Observer = std::function<void(const lang::Fragment& scores, const lang::Fragment& gradients)>;

  void add(const Branch& branch, const lang::Shared& k_tile, const lang::Shared& v_tile,
           const ScoreGradient::Mask& mask, const Observer& observer = {});
  void store(const lang::Tensor& dq, const lang::Expr& first);

 private:
  GradientTiles tiles_;
  ScoreGradient gradient_;
  lang::Expr bounded_;
  lang::Shared q_;
  lang::Fragment sum_;
};

// What a pass over keys sums: registers hold both sums of 128 keys up to 128 features, and one up to 256.
enum class KeySums : std::uint8_t { both, keys, values };

// The gradients of a tile of keys and values. Rows are keys, so that weights are left operands as they are.
class KeyGradient {
 public:
  KeyGradient(const GradientTiles& tiles, const ScoreGradient& gradient, KeySums sums = KeySums::both);

  // The rows from `first` on, of [keys, …].
  void load(const lang::Tensor& k, const lang::Tensor& v, const lang::Expr& first);
  // Told what these keys add to the gradients of the queries of a step [rows, d], but for factor().
  using Receiver = std::function<void(const lang::Fragment& contribution)>;
  // Queries as columns; base and delta of a column.
  using OfColumn = std::function<lang::Expr(const lang::Expr& column)>;
  void add(const lang::Shared& q_tile, const lang::Shared& dout_tile, const OfColumn& base,
           const OfColumn& delta, const ScoreGradient::Mask& mask, const Receiver& receiver = {});
  void add(const lang::Shared& q_tile, const lang::Shared& dout_tile, const lang::Shared& base,
           const lang::Shared& delta, const ScoreGradient::Mask& mask, const Receiver& receiver = {});
  // With late contributions a step tells its receiver those of the step before, of the first step zeros or
  // what was told already; this tells those of the last one.
  void contribute_last(const Receiver& receiver) const;
  void store(const lang::Tensor& dk, const lang::Tensor& dv, const lang::Expr& first);
  // Sums that several calls form one after the other, but for factor().
  void load_sums(const lang::Tensor& dk, const lang::Tensor& dv, const lang::Expr& first);
  void store_sums(const lang::Tensor& dk, const lang::Tensor& dv, const lang::Expr& first) const;

 private:
  // Tensor cores multiply 64 rows at a time: where a step has another number of queries, their features are
  // the rows of what these keys contribute.
  bool is_transposed() const;
  using Work = std::function<void()>;
  lang::Fragment contribute(const lang::Fragment& gradients, const Work& meanwhile) const;
  // Of the gradients of scores that are in the tile.
  lang::Fragment contribution_of(const lang::Shared& tile) const;
  void add_keys(const lang::Fragment& gradients, const lang::Shared& q_tile, const Receiver& receiver,
                const Work& meanwhile);

  GradientTiles tiles_;
  ScoreGradient gradient_;
  lang::Expr bounded_;
  lang::Shared k_;
  std::optional<lang::Shared> v_;  // for the gradients of scores, and so of keys
  std::optional<lang::Fragment> dk_, dv_;
  std::optional<lang::Shared> late_;  // the gradients of scores of the step before
};

inline constexpr int delta_rows = 64;
// For delta_rows rows from `first` on: the sum in f32 [tokens, d] times the factor; 0 where there is none.
void finish_sum(const lang::Tensor& sum, const lang::Tensor& dq, const lang::Expr& first, int dim,
                const lang::Expr& factor, const std::optional<lang::Expr>& exists = {});

// For delta_rows rows of one head, from `first` on: delta = sum(dout · out) − dlse, and base = lse · log2(e),
// less what LargeScores says, both 0 where lse is −∞.
void write_delta(const HeadRows& rows, const lang::Expr& first);

}  // namespace tegula::ops

// Fused attention with the user's own scores and masks: a function for the score, one for who sees whom and
// for which keys a block may see is all that differs. Causal, with ALiBi, inside documents, and with sigmoids
// instead of a softmax.
#include "tests/programs/decode/attention.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct FlexTile {
  int dim = 128, queries = 128, keys = 128;
  DType type = bf16;
};
enum class Variant { causal, alibi, documents, sigmoid };

// What a variant says of a pair of query and key.
struct Says {
  std::function<Expr(const Expr& score, const Expr& query, const Expr& key)> score;  // in natural units
  std::function<Expr(const Expr& query, const Expr& key)> sees;
  const Tensor* labels = nullptr;  // [batches, tokens]: of two tokens that see each other they are equal
  bool masks_all_blocks = false;  // or those at the diagonal and the end
  bool sigmoid = false;
};

struct FlexSignature {
  Dim B{"B"}, S{"S"}, H{"H"}, HK{"HK"};
  Tensor Q, K, V, O, LSE;
  Expr scale;

  explicit FlexSignature(const FlexTile& t)
      : Q(input("Q", {B, S, H, t.dim}, t.type)),
        K(input("K", {B, S, HK, t.dim}, t.type)),
        V(input("V", {B, S, HK, t.dim}, t.type)),
        O(output("O", {B, S, H, t.dim}, t.type)),
        LSE(output("LSE", {B, H, S}, f32)),
        scale(scalar("scale", f32)) {}
};

// The softmax of scores times log2(e), and what it has summed.
struct FlexWeights {
  const FlexTile& t;
  Fragment o, top, sum;

  explicit FlexWeights(const FlexTile& tile)
      : t(tile), o({t.queries, t.dim}, f32, 0), top({t.queries}, f32, -inf), sum({t.queries}, f32, 0) {}

  void weigh(Fragment& s) {
    Fragment before = clone(top), factor({t.queries}, f32), shift({t.queries}, f32);
    reduce_max(s, top);
    parallel(top, [&](Index i) {
      shift(i) = select(top(i) == -inf, 0, top(i));
      factor(i) = exp2(before(i) - shift(i));
      sum(i) *= factor(i);
    });
    parallel(s, [&](Index i, Index j) { s(i, j) = exp2(s(i, j) - shift(i)); });
    reduce_sum(s, sum);
    parallel(o, [&](Index i, Index e) { o(i, e) *= factor(i); });
  }
  void store_lse(const Tensor& to, const Expr& first) {
    parallel(o, [&](Index i, Index e) { o(i, e) *= select(sum(i) == 0, 0, rcp(sum(i))); });
    parallel(sum, [&](Index i) { sum(i) = select(sum(i) == 0, -inf, (top(i) + log2(sum(i))) / log2e); });
    copy(sum, to.at(first));
  }
};

void attend_rows(const FlexTile& t, const FlexSignature& s, const Says& says, const Expr& first,
                 const Expr& h, const Expr& b) {
  Expr hk = h / (s.H / s.HK), last = min(first + t.queries, s.S);
  Shared q({t.queries, t.dim}, t.type);
  copy(s.Q.slice(b, all, h).at(first), q);
  FlexWeights own(t);
  Fragment query_labels({t.queries}, i32);
  if (says.labels) copy(says.labels->slice(b).at(first), query_labels);
  pipelined(ceildiv(last, t.keys), {.stages = 2}, [&](Index j) {
    Shared k({t.keys, t.dim}, t.type), v({t.keys, t.dim}, t.type);
    copy(s.K.slice(b, all, hk).at(j * t.keys), k);
    Fragment scores({t.queries, t.keys}, f32, 0);
    gemm(q, k.T(), scores);
    parallel(scores, [&](Index i, Index c) {
      Expr raw = scores(i, c) * s.scale,
           score = says.score ? says.score(raw, first + i, j * t.keys + c) : raw;
      scores(i, c) = says.sigmoid ? rcp(1.0f + exp2(score * -log2e)) : score * log2e;
    });
    Expr end = (j + 1) * t.keys, partial = says.masks_all_blocks ? end > 0 : end > first + 1;
    Shared key_labels({t.keys}, i32);
    if (says.labels) copy(says.labels->slice(b).at(j * t.keys), key_labels);
    when(partial, [&] {
      parallel(scores, [&](Index i, Index c) {
        Expr key = j * t.keys + c, nothing = says.sigmoid ? Expr(f32(0)) : Expr(f32(-inf));
        Expr seen = key < s.S && says.sees(first + i, key),
             alike = says.labels ? query_labels(i) == key_labels(c) : Expr(Operand(true));
        scores(i, c) = select(seen && alike, scores(i, c), nothing);
      });
    });
    if (!says.sigmoid) own.weigh(scores);
    copy(s.V.slice(b, all, hk).at(j * t.keys), v);
    gemm(scores.to(t.type), v, own.o);
  });
  if (!says.sigmoid) own.store_lse(s.LSE.slice(b, h), first);
  copy(own.o, s.O.slice(b, all, h).at(first));
}

Kernel flex(Variant variant, const FlexTile& t) {
  return kernel("flex_attention", [&] {
    FlexSignature s(t);
    std::optional<Tensor> slopes, documents;
    std::optional<Expr> bias;
    if (variant == Variant::alibi) slopes.emplace(input("slopes", {s.H}, f32));
    if (variant == Variant::documents) documents.emplace(input("documents", {s.B, s.S}, i32));
    if (variant == Variant::sigmoid) bias.emplace(scalar("bias", f32));
    grid(ceildiv(s.S, t.queries), s.H, s.B, [&](Index x, Index h, Index b) {
      Says says;
      says.sees = [](const Expr& query, const Expr& key) -> Expr { return key <= query; };
      says.sigmoid = variant == Variant::sigmoid;
      says.masks_all_blocks = variant == Variant::documents;
      if (slopes)
        says.score = [slope = Expr((*slopes)(h))](const Expr& score, const Expr& query,
                                                  const Expr& key) -> Expr {
          return score + slope * f32(key - query);
        };
      if (bias)
        says.score = [&](const Expr& score, const Expr&, const Expr&) -> Expr { return score + *bias; };
      if (documents) says.labels = &*documents;
      attend_rows(t, s, says, x * t.queries, h, b);
    });
  });
}

constexpr int S = 150, H = 2, dim = 64;
constexpr double scale = 0.125, sigmoid_bias = -2;
const std::vector<float> slopes{0.1F, 0.02F};

Attended attended(Variant variant, const Numbers& Q, const Numbers& K, const Numbers& V, int h, int i) {
  std::vector<int> keys;
  for (int j = variant == Variant::documents ? i / 37 * 37 : 0; j <= i; ++j) keys.push_back(j);
  const int n = static_cast<int>(keys.size());
  const auto score = [&](int k) {
    const double dot = sum_of(dim, [&](int d) { return Q(0, i, h, d) * K(0, keys[k], 0, d); });
    return dot * scale + (variant == Variant::alibi ? slopes[h] * (keys[k] - i) : 0);
  };
  const auto value = [&](int k, int d) { return V(0, keys[k], 0, d); };
  if (variant != Variant::sigmoid) return attend(n, dim, score, value);
  Attended own{std::vector<double>(dim)};
  own.lse = NAN;  // none is written
  each(n, [&](int k) {
    const double weight = 1 / (1 + std::exp(-(score(k) + sigmoid_bias)));
    each(dim, [&](int d) { own.out[d] += weight * value(k, d); });
  });
  return own;
}

Prepared flex_call(Variant variant) {
  const Data q = normal({1, S, H, dim}, bf16, 1), k = normal({1, S, 1, dim}, bf16, 2),
             v = normal({1, S, 1, dim}, bf16, 3);
  const Numbers Q(q), K(k), V(v);
  Numbers O(Q.shape), LSE({1, H, S});
  each(H, S, [&](int h, int i) {
    const Attended own = attended(variant, Q, K, V, h, i);
    each(dim, [&](int d) { O(0, i, h, d) = own.out[d]; });
    LSE(0, h, i) = own.lse;
  });
  std::vector<Value> values{q, k, v, Wanted{O, bf16}, Wanted{LSE, f32, 1e-3}, scale};
  std::vector<int> documents;
  each(S, [&](int i) { documents.push_back(i / 37); });
  if (variant == Variant::alibi) values.emplace_back(Data::from(slopes));
  if (variant == Variant::documents) values.emplace_back(Data::from(documents, {1, S}));
  if (variant == Variant::sigmoid) values.emplace_back(sigmoid_bias);
  return {flex(variant, {dim, 64, 64}), values};
}

}  // namespace

Program flex_attention() {
  return {"linear",
          "flex_attention",
          "attention with a program's own scores and masks",
          {{"causal", [] { return flex_call(Variant::causal); }},
           {"alibi", [] { return flex_call(Variant::alibi); }},
           {"documents", [] { return flex_call(Variant::documents); }},
           {"sigmoid", [] { return flex_call(Variant::sigmoid); }}},
          {{"causal", [] { return flex(Variant::causal, {}); }},
           {"causal, 176 keys", [] { return flex(Variant::causal, {.keys = 176}); }},
           {"ALiBi", [] { return flex(Variant::alibi, {}); }},
           {"documents", [] { return flex(Variant::documents, {}); }},
           {"sigmoids", [] { return flex(Variant::sigmoid, {}); }}}};
}

}  // namespace programs

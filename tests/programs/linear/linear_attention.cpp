// Causal linear attention by chunks, with a decay for each head (retention) or none, and its gradients. Each
// of them is the same sum with other operands: O(q, k, v)_i = scale Σ_{j ≤ i} γ^(i−j) (q_i · k_j) v_j; dq =
// O(dO, v, k), and from the last row to the first dk = O(v, dO, q), dv = O(k, q, dO).
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct LinearTile {
  int dk = 128, dv = 128, chunk = 64, block_v = 64;
  bool decay = false;
  int threads = 0, stages = 2;
  DType type = f16;
};
struct Sum {
  Tensor Q, K, V, O;
  int dk, dv;
  bool reverse = false;
  std::optional<Tensor> final_state = {};
};

// One step: what the chunk takes from the state and from itself, and what it adds to the state. `rate` is the
// logarithm of the decay by 2.
void chunk_step(const LinearTile& t, const Sum& s, Fragment& state, const Expr& row, const Expr& column,
                const Expr& rate, const Expr& scale, const std::function<Tensor(const Tensor&)>& of) {
  const bool back = s.reverse;
  Shared q({t.chunk, s.dk}, t.type), k({t.chunk, s.dk}, t.type), v({t.chunk, t.block_v}, t.type);
  Shared rounded({s.dk, t.block_v}, t.type);
  copy(of(s.Q).at(row), q);
  copy(of(s.K).at(row), k);
  copy(of(s.V).at(row, column), v);
  copy(state, rounded);
  Fragment scores({t.chunk, t.chunk}, f32, 0), o({t.chunk, t.block_v}, f32, 0);
  gemm(q, k.T(), scores);
  gemm(q, rounded, o);
  parallel(scores, [&](Index i, Index j) {
    Expr distance = back ? j - i : i - j;
    Expr weight = t.decay ? scores(i, j) * exp2(f32(max(distance, 0)) * rate) : Expr(scores(i, j));
    scores(i, j) = select(distance >= 0, weight, 0);
  });
  if (t.decay)
    parallel(o, [&](Index i, Index j) { o(i, j) *= exp2(f32(back ? t.chunk - i : i + 1) * rate); });
  gemm(scores.to(t.type), v, o);
  parallel(o, [&](Index i, Index j) { o(i, j) *= scale; });
  copy(o, of(s.O).at(row, column));
  if (t.decay) {
    Expr rows = min(t.chunk, s.Q.extent(1) - row), whole = exp2(f32(rows) * rate);
    parallel(state, [&](Index i, Index j) { state(i, j) *= whole; });
    parallel(v,
             [&](Index i, Index j) { v(i, j) *= exp2(f32(back ? Expr(i) : max(rows - 1 - i, 0)) * rate); });
  }
  gemm(k.T(), v, state);
}

void sum_grid(const LinearTile& t, const Sum& s, const std::optional<Tensor>& gamma, const Expr& scale) {
  grid(ceildiv(s.dv, t.block_v), s.Q.extent(2), s.Q.extent(0), {.threads = t.threads},
       [&](Index x, Index h, Index b) {
         const auto of = [&](const Tensor& tensor) { return tensor.slice(b, all, h); };
         Expr column = x * t.block_v, chunks = ceildiv(s.Q.extent(1), t.chunk);
         Expr rate = t.decay ? Expr(log2((*gamma)(h))) : Expr(f32(0));
         Fragment state({s.dk, t.block_v}, f32, 0);
         pipelined(chunks, {.stages = t.stages}, [&](Index step) {
           Expr row = (s.reverse ? chunks - 1 - step : Expr(step)) * t.chunk;
           chunk_step(t, s, state, row, column, rate, scale, of);
         });
         if (s.final_state) copy(state, s.final_state->slice(b, h).at(0, column));
       });
}

struct LinearInputs {
  Dim B{"B"}, S{"S"}, H{"H"};
  Tensor Q, K, V;
  std::optional<Tensor> gamma;

  explicit LinearInputs(const LinearTile& t)
      : Q(input("Q", {B, S, H, t.dk}, t.type)),
        K(input("K", {B, S, H, t.dk}, t.type)),
        V(input("V", {B, S, H, t.dv}, t.type)) {
    if (t.decay) gamma.emplace(input("gamma", {H}, f32));
  }
};

Kernel linear_attention_of(const LinearTile& t) {
  return kernel("linear_attention", [&] {
    LinearInputs in(t);
    Expr scale = scalar("scale", f32);
    Tensor O = output("O", {in.B, in.S, in.H, t.dv}, t.type);
    Tensor end = output("final_state", {in.B, in.H, t.dk, t.dv}, f32);
    sum_grid(t, {in.Q, in.K, in.V, O, t.dk, t.dv, false, end}, in.gamma, scale);
  });
}

Kernel linear_attention_gradient_of(const LinearTile& t) {
  return kernel("linear_attention_gradient", [&] {
    LinearInputs in(t);
    Tensor dO = input("dO", {in.B, in.S, in.H, t.dv}, t.type);
    Expr scale = scalar("scale", f32);
    Tensor dQ = output("dQ", {in.B, in.S, in.H, t.dk}, t.type),
           dK = output("dK", {in.B, in.S, in.H, t.dk}, t.type);
    Tensor dV = output("dV", {in.B, in.S, in.H, t.dv}, t.type);
    sum_grid(t, {dO, in.V, in.K, dQ, t.dv, t.dk}, in.gamma, scale);
    sum_grid(t, {in.V, dO, in.Q, dK, t.dv, t.dk, true}, in.gamma, scale);
    sum_grid(t, {in.K, in.Q, dO, dV, t.dk, t.dv, true}, in.gamma, scale);
  });
}

constexpr int steps = 100, heads = 2;
constexpr double linear_scale = 0.25;
const std::vector<float> gammas{0.97F, 0.99F};

Prepared linear_call(bool decay, bool gradient) {
  const LinearTile t{.dk = 64, .dv = 32, .block_v = 32, .decay = decay};
  const Data q = normal({1, steps, heads, t.dk}, f16, 1, .3), k = normal({1, steps, heads, t.dk}, f16, 2, .3);
  const Data v = normal({1, steps, heads, t.dv}, f16, 3), dout = normal({1, steps, heads, t.dv}, f16, 4);
  const Numbers Q(q), K(k), V(v), D(dout);
  Numbers O(V.shape), dQ(Q.shape), dK(Q.shape), dV(V.shape), state({1, heads, t.dk, t.dv});
  each(heads, steps, [&](int h, int i) {
    const double rate = decay ? gammas[h] : 1, last = std::pow(rate, steps - 1 - i);
    each(t.dk, t.dv, [&](int d, int e) { state(0, h, d, e) += last * K(0, i, h, d) * V(0, i, h, e); });
    each(i + 1, [&](int j) {
      const double weight = linear_scale * std::pow(rate, i - j);
      const double qk = weight * sum_of(t.dk, [&](int d) { return Q(0, i, h, d) * K(0, j, h, d); });
      const double dv = weight * sum_of(t.dv, [&](int e) { return D(0, i, h, e) * V(0, j, h, e); });
      each(t.dv, [&](int e) {
        O(0, i, h, e) += qk * V(0, j, h, e);
        dV(0, j, h, e) += qk * D(0, i, h, e);
      });
      each(t.dk, [&](int d) {
        dQ(0, i, h, d) += dv * K(0, j, h, d);
        dK(0, j, h, d) += dv * Q(0, i, h, d);
      });
    });
  });
  std::vector<Value> values{q, k, v};
  if (decay) values.emplace_back(Data::from(gammas));
  if (gradient) {
    for (Value value :
         {Value(dout), Value(linear_scale), Value(Wanted{dQ, f16}), Value(Wanted{dK, f16}), Value(Wanted{dV, f16})})
      values.push_back(std::move(value));
    return {linear_attention_gradient_of(t), values};
  }
  for (Value value : {Value(linear_scale), Value(Wanted{O, f16}), Value(Wanted{state, f32})})
    values.push_back(std::move(value));
  return {linear_attention_of(t), values};
}

}  // namespace

Program linear_attention() {
  return {"linear",
          "linear_attention",
          "causal linear attention and retention by chunks",
          {{"", [] { return linear_call(false, false); }},
           {"retention", [] { return linear_call(true, false); }}},
          {{"64 columns", [] { return linear_attention_of({}); }},
           {"64 columns, 128 threads", [] { return linear_attention_of({.threads = 128}); }},
           {"128 columns", [] { return linear_attention_of({.block_v = 128}); }},
           {"retention, 64 columns", [] { return linear_attention_of({.decay = true}); }}}};
}
Program linear_attention_gradient() {
  return {
      "linear",
      "linear_attention_gradient",
      "its gradients as three sums of the same kind",
      {{"", [] { return linear_call(false, true); }}, {"retention", [] { return linear_call(true, true); }}},
      {{"64 columns", [] { return linear_attention_gradient_of({}); }},
       {"64 columns, 128 threads", [] { return linear_attention_gradient_of({.threads = 128}); }}}};
}

}  // namespace programs

// A mixture of experts: h = silu(x · Wgᵀ) ⊙ (x · Wuᵀ), out = h · Wdᵀ. Shared experts; and routed ones, whose
// rows are looked up by sorted token numbers and whose results are weighted and added to the rows of their
// tokens.
#include "tests/programs/gemm/products.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

Expr silu(const Expr& x) { return x / (1.f + exp2(-x * log2e)); }

// Both products of a step share the tile of x, which load_x(k, tile) brings.
template <class Load>
void gate_and_up(Fragment& h, const Tensor& gate, const Tensor& up, const Expr& column, const Expr& K,
                 const GemmTile& t, Load load_x) {
  Fragment acc({t.m, t.n}, f32, 0);
  pipelined(ceildiv(K, t.k), {.stages = 4}, [&](Index k) {
    Shared x({t.m, t.k}, bf16), g({t.n, t.k}, bf16), u({t.n, t.k}, bf16);
    load_x(k * t.k, x);
    copy(gate.at(column, k * t.k), g);
    copy(up.at(column, k * t.k), u);
    gemm(x, g.T(), h);
    gemm(x, u.T(), acc);
  });
  parallel(h, [&](Index i, Index j) { h(i, j) = silu(h(i, j)) * acc(i, j); });
}

Kernel shared_experts(const GemmTile& a, const GemmTile& b) {
  return kernel("moe_shared", [&] {
    Dim T("T"), D("D"), E("E");
    Tensor X = input("X", {T, D}, bf16), gate = input("gate", {E, D}, bf16), up = input("up", {E, D}, bf16);
    Tensor down = input("down", {D, E}, bf16), out = output("out", {T, D}, bf16);
    Tensor H = workspace("H", {T, E}, bf16);
    grid(ceildiv(E, a.n), ceildiv(T, a.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment h({a.m, a.n}, f32, 0);
      gate_and_up(h, gate, up, x * a.n, D, a,
                  [&](const Expr& k, Shared& tile) { copy(X.at(y * a.m, k), tile); });
      copy(h, H.at(y * a.m, x * a.n));
    });
    grid(ceildiv(D, b.n), ceildiv(T, b.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment acc({b.m, b.n}, f32, 0);
      multiply(acc, H, down, y * b.m, x * b.n, steps_of(E, b), b);
      copy(acc, out.at(y * b.m, x * b.n));
    });
  });
}

// Pairs of token and expert, sorted by expert: token[p], weight[p]; expert g has those of first[g] … first[g
// + 1].
Kernel routed_experts(const GemmTile& a, const GemmTile& b) {
  return kernel("moe_routed", [&] {
    Dim T("T"), D("D"), E("E"), G("G"), P("P");
    Tensor X = input("X", {T, D}, bf16), gate = input("gate", {G, E, D}, bf16),
           up = input("up", {G, E, D}, bf16);
    Tensor down = input("down", {G, D, E}, bf16), token = input("token", {P}, i32);
    Tensor weight = input("weight", {P}, f32), first = input("first", {G + 1}, i32);
    Tensor out = output("out", {T, D}, f32, {.zero = true}), H = workspace("H", {P, E}, bf16);
    grid(ceildiv(E, a.n), ceildiv(P, a.m) + G, {.order = Order::grouped(8)}, [&](Index x, Index y) {
      GroupTile own(first, y, a.m);
      exit_if(own.group < 0);
      Expr g = own.group, row = own.row;
      const Range pairs = range(first(g), first(g + 1));
      Tensor tokens = token.slice(pairs);
      Fragment h({a.m, a.n}, f32, 0);
      const auto token_of = [&](Index i) { return select(row + i < tokens.extent(0), tokens(row + i), -1); };
      gate_and_up(h, gate.slice(g), up.slice(g), x * a.n, D, a, [&](const Expr& k, Shared& tile) {
        gather(X.slice(all, range(k, k + a.k)), token_of, tile);
      });
      copy(h, H.slice(pairs).at(row, x * a.n));
    });
    grid(ceildiv(D, b.n), ceildiv(P, b.m) + G, {.order = Order::grouped(8)}, [&](Index x, Index y) {
      GroupTile own(first, y, b.m);
      exit_if(own.group < 0);
      Expr g = own.group, row = own.row;
      const Range pairs = range(first(g), first(g + 1));
      Tensor tokens = token.slice(pairs), weights = weight.slice(pairs);
      Fragment acc({b.m, b.n}, f32, 0);
      multiply(acc, H.slice(pairs), down.slice(g), row, x * b.n, steps_of(E, b), b);
      // A row of `out` belongs to several pairs.
      parallel(acc, [&](Index i, Index j) {
        when(row + i < tokens.extent(0) && x * b.n + j < D,
             [&] { atomic_add(out(tokens(row + i), x * b.n + j), acc(i, j) * weights(row + i)); });
      });
    });
  });
}

constexpr int tokens = 70, features = 128, hidden = 72, experts = 3;

struct Experts {
  Data x = normal({tokens, features}, bf16, 1), gate = normal({experts, hidden, features}, bf16, 2, .1),
       up = normal({experts, hidden, features}, bf16, 3, .1),
       down = normal({experts, features, hidden}, bf16, 4, .1);
  Numbers X{x}, G{gate}, U{up}, D{down};

  // The result of an expert for a token, from hidden values as they are stored.
  std::vector<double> result(int token, int expert) const {
    std::vector<double> h, out;
    each(hidden, [&](int e) {
      const double a = sum_of(features, [&](int d) { return X(token, d) * G(expert, e, d); });
      const double b = sum_of(features, [&](int d) { return X(token, d) * U(expert, e, d); });
      h.push_back(tegula::round_to(bf16, a / (1 + std::exp(-a)) * b));
    });
    each(features,
         [&](int d) { out.push_back(sum_of(hidden, [&](int e) { return h[e] * D(expert, d, e); })); });
    return out;
  }
};


Prepared shared_call() {
  const Experts e;
  Numbers out({tokens, features});
  each(tokens, [&](int t) {
    const auto own = e.result(t, 0);
    each(features, [&](int d) { out(t, d) = own[d]; });
  });
  return {shared_experts(small_tile, small_tile),
          {e.x, e.gate.select(0, 0), e.up.select(0, 0), e.down.select(0, 0), Wanted{out, bf16}}};
}

Prepared routed_call() {
  const Experts e;
  std::vector<int> token, first{0};
  std::vector<float> weight;
  Numbers out({tokens, features});
  each(experts, [&](int g) {
    each(tokens, [&](int t) {
      if ((t * 7 + g) % 3 == 0) return;
      token.push_back(t);
      weight.push_back(0.1F * static_cast<float>(t % 7));
      const auto own = e.result(t, g);
      each(features, [&](int d) { out(t, d) += weight.back() * own[d]; });
    });
    first.push_back(static_cast<int>(token.size()));
  });
  return {routed_experts(small_tile, small_tile),
          {e.x, e.gate, e.up, e.down, Data::from(token), Data::from(weight), Data::from(first),
           Wanted{out, f32}}};
}

}  // namespace

Program moe_shared() {
  return {"gemm",
          "moe_shared",
          "an expert that all tokens see: two products and silu, then a third",
          {{"", shared_call}},
          {{"128 x 128, then 128 x 256", [] {
              return shared_experts({128, 128, 64}, {128, 256, 64});
            }}}};
}
Program moe_routed() {
  return {"gemm",
          "moe_routed",
          "experts whose tokens are looked up, and whose results are weighted and added",
          {{"", routed_call}},
          {{"128 x 128", [] {
              return routed_experts({128, 128, 64}, {128, 128, 64});
            }}}};
}

}  // namespace programs

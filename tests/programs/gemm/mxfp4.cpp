// C = A · Wᵀ (+ bias) with weights in MXFP4: e2m1, two in a byte, and a power of two (e8m0) for 32 of them
// along the inner dimension; and its grouped form for a mixture of experts, with rows that are looked up, a
// bias, and a weight for each pair of token and expert.
#include "tests/programs/gemm/four_bits.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

// The low four bits as f32: exponent and mantissa at the places of an f32's, times 2^126, which also fits
// denormals.
Expr e2m1(const Expr& x) { return bitcast(((x & 8u) << u32(28)) | ((x & 7u) << u32(22)), f32) * 0x1p126f; }
Expr e8m0(const Expr& x) { return bitcast(max(x << u32(23), 0x400000u), f32); }  // 2^(x − 127)

enum class Mxfp4Way { registers, packed, shared };

// The tiles of weights of a step.
struct Mxfp4Tiles {
  Shared B, scale;

  // B [N, K / 2] or packed [N, K / 8], scales [K / 32, N].
  Mxfp4Tiles(const Tensor& weights, const Tensor& scales, const Index& step, const Expr& column,
              const GemmTile& t, bool packed)
      : B({t.n, packed ? t.k / 8 : t.k / 2}, packed ? u32 : u8), scale({t.k / 32, t.n}, u8) {
    copy(weights.at(column, packed ? step * (t.k / 8) : step * (t.k / 2)), B);
    copy(scales.at(step * (t.k / 32), column), scale);
  }
  Fragment decoded(const GemmTile& t, bool packed) const {
    Fragment W({t.n, t.k}, f32);
    parallel(W, [&](Index i, Index j) {
      Expr at = packed ? packed_place(j, t.k) : Expr(j);
      Expr bits = packed ? B(i, at / 8) >> u32(at % 8 * 4) : B(i, at / 2) >> u32(at % 2 * 4);
      W(i, j) = e2m1(bits) * e8m0(scale(j / 32, i));
    });
    return W;
  }
};

// acc += W · Aᵀ for weights from row `column` on; load_a(k, tile) brings a tile of A.
template <class Load>
void multiply_decoded(Fragment& acc, const Tensor& weights, const Tensor& scales, const Expr& column,
                      const Expr& K, const GemmTile& t, bool packed, Load load_a) {
  pipelined(ceildiv(K, t.k), {.stages = 4}, [&](Index step) {
    Shared a({t.m, t.k}, bf16);
    load_a(step * t.k, a);
    const Mxfp4Tiles own(weights, scales, step, column, t, packed);
    gemm(own.decoded(t, packed).to(bf16), a.T(), acc);
  });
}

Kernel mxfp4_gemm(Mxfp4Way way, const GemmTile& t) {
  return kernel("gemm_mxfp4", [&] {
    const bool packed = way == Mxfp4Way::packed;
    Dim M("M"), N("N"), K("K");
    K.multiple_of(t.k);
    Tensor A = input("A", {M, K}, bf16),
           B = packed ? input("B", {N, K / 8}, u32) : input("B", {N, K / 2}, u8);
    Tensor scales = input("scales", {K / 32, N}, u8), bias = input("bias", {N}, bf16);
    Tensor C = output("C", {M, N}, bf16);
    grid(ceildiv(N, t.n), ceildiv(M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment added({t.n}, f32);
      copy(bias.at(x * t.n), added);
      if (way != Mxfp4Way::shared) {
        Fragment acc({t.n, t.m}, f32, 0);
        multiply_decoded(acc, B, scales, x * t.n, K, t, packed,
                         [&](const Expr& k, Shared& tile) { copy(A.at(y * t.m, k), tile); });
        parallel(acc, [&](Index i, Index j) { acc(i, j) += added(i); });
        copy(acc.T(), C.at(y * t.m, x * t.n));
        return;
      }
      Fragment acc({t.m, t.n}, f32, 0);
      pipelined(K / t.k, {.stages = 4}, [&](Index step) {
        Shared a({t.m, t.k}, bf16), w({t.n, t.k}, bf16);
        copy(A.at(y * t.m, step * t.k), a);
        const Mxfp4Tiles own(B, scales, step, x * t.n, t, false);
        copy(own.decoded(t, false), w);
        gemm(a, w.T(), acc);
      });
      parallel(acc, [&](Index i, Index j) { acc(i, j) += added(j); });
      copy(acc, C.at(y * t.m, x * t.n));
    });
  });
}

// Pairs of token and expert are sorted by expert and padded: ids[p] = token · S + slot, or −1; the expert of
// each tile of pairs is told. C[token, slot] = weights[id] · (A[token] · W_eᵀ + bias_e).
Kernel grouped_mxfp4_gemm(const GemmTile& t) {
  return kernel("grouped_gemm_mxfp4", [&] {
    Dim M("M"), N("N"), K("K"), E("E"), P("P"), S("S");
    K.multiple_of(t.k);
    Tensor A = input("A", {M, K}, bf16), B = input("B", {E, N, K / 8}, u32);
    Tensor scales = input("scales", {E, K / 32, N}, u8), bias = input("bias", {E, N}, bf16);
    Tensor weights = input("weights", {M * S}, f32), ids = input("ids", {P}, i32);
    Tensor experts = input("experts", {P / t.m}, i32), C = output("C", {M, S, N}, bf16);
    Tensor results = C.reshape({M * S, N});
    grid(ceildiv(N, t.n), P / t.m, {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Expr e = experts(y);
      exit_if(e < 0);
      Fragment acc({t.n, t.m}, f32, 0), added({t.n}, f32);
      multiply_decoded(acc, B.slice(e), scales.slice(e), x * t.n, K, t, true,
                       [&](const Expr& k, Shared& tile) {
                         const auto token = [&](Index i) {
                           Expr id = ids(y * t.m + i);
                           return select(id < 0, -1, id / S);
                         };
                         gather(A.slice(all, range(k, k + t.k)), token, tile);
                       });
      copy(bias.slice(e).at(x * t.n), added);
      parallel(acc, [&](Index i, Index j) {
        Expr id = ids(y * t.m + j);
        when(id >= 0 && x * t.n + i < N,
             [&] { results(id, x * t.n + i) = (acc(i, j) + added(i)) * weights(id); });
      });
    });
  });
}

struct Mxfp4 {
  Data q, scales;
  Numbers W;  // [N, K]
};
Mxfp4 random_weights(int n, int k, int seed) {
  constexpr double values[] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6};
  Mxfp4 own{integers({n, k}, i32, seed, 0, 16), integers({k / 32, n}, u8, seed + 1, 120, 130),
            Numbers({n, k})};
  const Numbers q(own.q), s(own.scales);
  each(n, k, [&](int i, int j) {
    own.W(i, j) = values[static_cast<int>(q(i, j))] * std::exp2(s(j / 32, i) - 127);
  });
  return own;
}

const GemmTile narrow{32, 64, 64};

Prepared mxfp4_call(Mxfp4Way way) {
  const int M = 40, N = 136, K = 128;
  const Data a = normal({M, K}, bf16, 1), bias = normal({N}, bf16, 4);
  const Mxfp4 w = random_weights(N, K, 2);
  const Numbers added(bias);
  Numbers C = product_of(Numbers(a), w.W);
  each(M, N, [&](int i, int j) { C(i, j) += added(j); });
  const Data words = way == Mxfp4Way::packed ? packed_words(w.q, narrow.k) : packed_bytes(w.q);
  return {mxfp4_gemm(way, narrow), {a, words, w.scales, bias, Wanted{C, bf16, 6e-3}}};
}

Prepared grouped_mxfp4_call() {
  const int M = 40, N = 136, K = 128, E = 2, S = 2, P = 96;
  std::vector<int> ids(P, -1);
  const std::vector<int> experts{1, 0, 0};  // of tiles of 32 pairs
  each(30, [&](int i) { ids[i] = i * S + i % 2; });
  each(40, [&](int i) { ids[32 + i] = i * S + (i < 30 ? 1 - i % 2 : i % 2); });
  const Data a = normal({M, K}, bf16, 1), bias = normal({E, N}, bf16, 4), weights = uniform({M * S}, f32, 7);
  const Mxfp4 w = random_weights(E * N, K, 2);
  const Numbers A(a), B(bias), weight(weights);
  Numbers C({M, S, N}, NAN);
  each(P, N, [&](int p, int n) {
    if (ids[p] < 0) return;
    const int e = experts[p / 32], token = ids[p] / S;
    const double dot = sum_of(K, [&](int k) { return A(token, k) * w.W(e * N + n, k); });
    C(token, ids[p] % S, n) = (dot + B(e, n)) * weight(ids[p]);
  });
  const Data scales = w.scales.reshape({K / 32, E, N}).transpose(0, 1).contiguous();
  return {grouped_mxfp4_gemm(narrow),
          {a, packed_words(w.q, narrow.k).reshape({E, N, K / 8}), scales, bias, weights, Data::from(ids),
           Data::from(experts), Wanted{C, bf16, 6e-3}}};
}

}  // namespace

Program gemm_mxfp4() {
  return {"gemm",
          "gemm_mxfp4",
          "a product with weights in MXFP4",
          {{"registers", [] { return mxfp4_call(Mxfp4Way::registers); }},
           {"packed", [] { return mxfp4_call(Mxfp4Way::packed); }},
           {"shared", [] { return mxfp4_call(Mxfp4Way::shared); }}},
          {{"into registers, 128 x 128 x 128",
            [] {
              return mxfp4_gemm(Mxfp4Way::registers, {128, 128, 128});
            }},
           {"packed, 256 x 128 x 64",
            [] {
              return mxfp4_gemm(Mxfp4Way::packed, {256, 128, 64});
            }},
           {"packed, 16 x 64 x 128",
            [] {
              return mxfp4_gemm(Mxfp4Way::packed, {16, 64, 128});
            }},
           {"into shared memory, 128 x 128 x 128", [] {
              return mxfp4_gemm(Mxfp4Way::shared, {128, 128, 128});
            }}}};
}
Program grouped_gemm_mxfp4() {
  return {"gemm",
          "grouped_gemm_mxfp4",
          "the same for pairs of token and expert, whose rows are looked up",
          {{"", grouped_mxfp4_call}},
          {{"packed, 128 x 128 x 64", [] {
              return grouped_mxfp4_gemm({128, 128, 64});
            }}}};
}

}  // namespace programs

// C = A · Wᵀ with weights of 4 bits, decoded in front of the product.
#include <functional>

#include "tests/variants/variants.hpp"

namespace variants::int4_variants {
namespace {

using namespace tegula::lang;

constexpr int m = 128, n = 128, k = 64, group = 64;

struct Inputs {
  Dim M{"M"}, N{"N"}, K{"K"};
  Tensor A = input("A", {M, K}, f16), B = input("B", {N, K / 2}, u8),
         scale = input("scale", {K / group, N}, f16);
  Tensor C = output("C", {M, N}, f16);
  Inputs() { K.multiple_of(k); }
};
struct Tiles {
  Shared a{{m, k}, f16}, b{{n, k / 2}, u8}, scale{{1, n}, f16};
};

Expr decoded(const Tiles& t, const Index& i, const Index& j) {
  return f32((t.b(i, j / 2) >> u32(j % 2 * 4)) & 15u) - 8.f;
}

using Step = std::function<void(Tiles&, Fragment& acc)>;

Kernel int4(const Step& step) {
  return kernel("int4", [&] {
    Inputs in;
    grid(ceildiv(in.N, n), ceildiv(in.M, m), [&](Index x, Index y) {
      Fragment acc({n, m}, f32, 0);
      pipelined(in.K / k, {.stages = 4}, [&](Index s) {
        Tiles t;
        copy(in.A.at(y * m, s * k), t.a);
        copy(in.B.at(x * n, s * (k / 2)), t.b);
        copy(in.scale.at(s, x * n), t.scale);
        step(t, acc);
      });
      copy(acc.T(), in.C.at(y * m, x * n));
    });
  });
}

void in_f32_registers(Tiles& t, Fragment& acc) {
  Fragment w({n, k}, f32);
  parallel(w, [&](Index i, Index j) { w(i, j) = decoded(t, i, j) * t.scale(0, i); });
  gemm(w.to(f16), t.a.T(), acc);
}
void in_f16_registers(Tiles& t, Fragment& acc) {
  Fragment w({n, k}, f16);
  parallel(w, [&](Index i, Index j) { w(i, j) = decoded(t, i, j) * t.scale(0, i); });
  gemm(w, t.a.T(), acc);
}
void scales_in_registers(Tiles& t, Fragment& acc) {
  Fragment w({n, k}, f32), scale({n}, f32);
  parallel(scale, [&](Index i) { scale(i) = t.scale(0, i); });
  parallel(w, [&](Index i, Index j) { w(i, j) = decoded(t, i, j) * scale(i); });
  gemm(w.to(f16), t.a.T(), acc);
}
void scaled_afterwards(Tiles& t, Fragment& acc) {
  Fragment w({n, k}, f32);
  parallel(w, [&](Index i, Index j) { w(i, j) = decoded(t, i, j); });
  parallel(w, [&](Index i, Index j) { w(i, j) *= t.scale(0, i); });
  gemm(w.to(f16), t.a.T(), acc);
}
void decoded_to_integers(Tiles& t, Fragment& acc) {
  Fragment code({n, k}, i32), w({n, k}, f16);
  parallel(code, [&](Index i, Index j) { code(i, j) = i32((t.b(i, j / 2) >> u32(j % 2 * 4)) & 15u) - 8; });
  parallel(w, [&](Index i, Index j) { w(i, j) = f32(code(i, j)) * t.scale(0, i); });
  gemm(w, t.a.T(), acc);
}
void low_or_high_by_select(Tiles& t, Fragment& acc) {
  Fragment w({n, k}, f16);
  parallel(w, [&](Index i, Index j) {
    Expr byte = t.b(i, j / 2), code = select(j % 2 == 0, byte & 15u, byte >> 4u);
    w(i, j) = (f32(code) - 8.f) * t.scale(0, i);
  });
  gemm(w, t.a.T(), acc);
}

TEST(Int4InSeveralWays, IsPlannedAlikeWhereRegistersFeedTheProduct) {
  expect_planned_alike({{"in f32 registers", int4(in_f32_registers)},
                        {"in f16 registers", int4(in_f16_registers)},
                        {"scales in registers", int4(scales_in_registers)},
                        {"scaled afterwards", int4(scaled_afterwards)},
                        {"decoded to integers", int4(decoded_to_integers)},
                        {"low or high by select", int4(low_or_high_by_select)}});
}

}  // namespace
}  // namespace variants::int4_variants

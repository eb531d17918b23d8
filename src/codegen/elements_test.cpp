// Elements, lanes and atomics on the CPU executor, and in CUDA text: the same as the interpreter's.
#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace elements_test {

using namespace lang;
using lang::Tensor;

// Elements of tiles of one type, in an order of their own.
void record_lanes_of_tiles(Program& p, DType type) {
  Tensor X = p.in(Data::random_integers({37}, i32, 4, 0, 2).to(type)),
         I = p.in(Data::random_integers({37}, i32, 5, -3, 44)), Y = p.out({4, 37}, type);
  grid(1, [&](Index) {
    Shared x({37}, type), sorted({64, 2}, type);
    copy(X, x);
    fill(sorted, type(1));
    parallel(37, [&](Index i) { Y(0, i) = select(I(i) >= 0 && I(i) < 37, x(I(i)), type(0)); });
    parallel(37, [&](Index i) { Y(1, i) = x.slice(range(3, 37))(33 - i % 34); });
    parallel(37, [&](Index i) { sorted((i * 5) % 37, i % 2) = x(i); });
    parallel(37, [&](Index i) { when(I(i) > 20, [&] { sorted(40 + i / 2, (i + 1) % 2) = x(36 - i); }); });
    parallel(37, [&](Index i) { Y(2, i) = sorted(i, 0), Y(3, i) = sorted(i + 27, 1); });
  });
}

const Case element_cases[] = {
    {"lanes of tiles",
     [](Program& p) {
       for (const DType type : {f32, bf16, i32, i8, u32, boolean, f64, i64}) record_lanes_of_tiles(p, type);
     }},
    {"small floats whose bits stand in those of larger ones",
     [](Program& p) {
       Tensor bits = p.in(Data::random_integers({64}, i32, 7, 0, 1 << 30)), out = p.out({4, 64}, f32);
       grid(1, [&](Index) {
         parallel(64, [&](Index i) {
           const Expr e2m1 = u32(bits(i)) & 15u, any = u32(bits(i));
           out(0, i) = bitcast(((e2m1 & 8u) << 28) | ((e2m1 & 7u) << 22), f32) * 0x1p126f;
           out(1, i) = bitcast((any & 0x80ffffffu), f32) * 0x1p100f;
           out(2, i) = bitcast((any & 0x7fu) << 20, f32) * 0x1p120f;
           out(3, i) = bitcast((any & 0x80000007u) << (any & 1u), f32) * 0x1p64f;
         });
       });
     }},
    {"lanes that go by other steps",
     [](Program& p) {
       Tensor X = p.in(floats({4, 80})), I = p.in(Data::random_integers({4, 37}, i32, 4, -5, 85)),
              Y = p.out({4, 37, 8}, f32), Z = p.zeroed({80}, f32);
       grid(4, [&](Index b) {
         Shared s({80}, f32);
         copy(X.slice(b), s);
         parallel(37, [&](Index i) {
           Y(b, i, 0) = s(i * 2);
           Y(b, i, 1) = s(36 - i) + X(b, 2 * i + 1);
           Y(b, i, 2) = X(b, I(b, i));
           Y(b, i, 3) = X(b, i - 5);
           Y(b, i, 4) = X(i - 30, b);
           Y(b, i, 5) = s(i / 3) + s(i % 7);
           Y(b, i, 6) = s(5) + X(b, 7);
           Expr k = i + b * 3;
           Y(b, i, 7) = X(b, k + 1) + X(k % 4, k);
         });
         when(b == 1, [&] { parallel(37, [&](Index i) { Z(78 - 2 * i) = s(i); }); });
         when(b == 2, [&] { parallel(80, [&](Index i) { when(i % 2 == 1, [&] { Z(i) = s(i); }); }); });
       });
     }},
    {"lanes that exchange elements",
     [](Program& p) {
       Tensor X = p.in(floats({3, 64})), Y = p.out({3, 6, 64}, f32), Z = p.out({2, 40}, bf16);
       grid(3, [&](Index b) {
         Shared s({2, 64}, f32), t({40}, bf16);
         copy(X.slice(b), s.slice(1)), copy(X.slice(b).at(0), t);
         parallel(64, [&](Index i) {
           Y(b, 0, i) = s(1, i ^ 1) + s(1, i);
           Y(b, 1, i) = s(1, i ^ 6) * 2.0f;
           Y(b, 2, i) = s(1, i ^ 8);
           Y(b, 3, i) = s(1, i ^ 21);
           Y(b, 4, i) = s(1, i ^ b);
           Y(b, 5, i) = s(1, (i + 1) % 64 ^ 2);
         });
         when(b == 1, [&] { parallel(40, [&](Index i) { Z(0, i) = t(i ^ 4), Z(1, i) = t(i % 32 ^ 16); }); });
       });
     }},
    {"groups of lanes that share an element",
     [](Program& p) {
       Tensor X = p.in(floats({9, 80})), S = p.in(floats({9, 5})),
              I = p.in(Data::random_integers({3, 4}, i32, 4, -2, 11)), Y = p.out({3, 4, 80}, f32),
              Z = p.out({4, 3, 37}, f32), U = p.out({3, 80}, f32);
       grid(3, [&](Index b) {
         Shared t({4, 80}, f32), few({4, 37}, f32), s({5, 80}, f32);
         parallel(s, [&](Index i, Index d) { s(i, d) = f32(i * 7 + d) * 0.25f; });
         parallel(t, [&](Index i, Index d) {
           Expr row = I(b, i);
           t(i, d) = X(row, d) * S(row, d / 16) + f32(d / 32) - S(row, (d + 8) / 16);
         });
         parallel(few, [&](Index i, Index d) {
           few(i, d) = f32(d / 16 * 16) + f32(d % 16) * 0.5f;
           when(d / 32 == 1, [&] { few(i, d) = s(d / 32, i) + t(i, d / 16); });
         });
         copy(t, Y.slice(b));
         when(b == 1, [&] { parallel(4, 37, [&](Index i, Index d) { Z(i, d / 16, d) = few(i, d); }); });
         parallel(80, [&](Index d) { U(b, d) = s(d / 64, d / 16) + t(d / 32, d); });
       });
     }},
    {"loops that share rows",
     [](Program& p) {
       Tensor X = p.in(floats({6, 21})), Y = p.out({6, 21}, f32), Z = p.out({6, 21}, f32),
              V = p.out({6}, f32), U = p.out({21, 21}, f32);
       grid(1, [&](Index) {
         Shared a({6, 21}, f32), b({6, 21}, f32), c({6}, f32), q({21, 21}, f32), r({21, 21}, f32);
         copy(X, a);
         parallel(6, 21, [&](Index i, Index j) { b(i, j) = a(i, j) * 2.0f; });
         parallel(6, 21, [&](Index i, Index j) { a(i, j) = b(i, 20 - j); });
         parallel(6, 21, [&](Index i, Index j) { b(i, j) += a(5 - i, j); });
         Fragment sums = reduce_sum(b);
         parallel(6, 21, [&](Index i, Index j) { b(i, j) -= sums(i); });
         reduce_max(b, sums);
         parallel(6, [&](Index i) { c(i) = sums(i); });
         parallel(6, 21, [&](Index i, Index j) { a(i, j) += c(i); });
         copy(a, Y);
         copy(b, Z);
         copy(c, V);
         parallel(21, 21, [&](Index i, Index j) { q(i, j) = f32(i * 21 + j); });
         parallel(21, 21, [&](Index i, Index j) { r(i, j) = q(j, i); });
         parallel(21, 21, [&](Index i, Index j) { q(i, j) += r(i, j) + r(j, i) + r(i, i); });
         parallel(21, 21, [&](Index i, Index j) { r(j, i) = q(i, j) + q(0, j); });
         copy(r, U);
       });
     }},
    {"loops over a part of a tile's rows that is known at run time",
     [](Program& p) {
       Tensor counts = p.in(Data::random_integers({9, 1}, i32, 5, -2, 8)), Y = p.out({9, 2, 6}, i8),
              Z = p.out({9, 13}, f32);
       grid(9, [&](Index b) {
         Fragment few({2, 6}, i8, 0);
         Shared more({13}, f32);
         fill(more, 0);
         Expr count = floormod(counts(b, 0), 8) - 1;
         parallel(2, count, [&](Index i, Index j) { few(i, j) = j + i + 1; });
         parallel(min(count * 2, 13), [&](Index j) { more(j) = f32(j) + 1.f; });
         copy(few, Y.slice(b));
         copy(more, Z.slice(b));
       });
     }},
    {"loops that share rows of tensors",
     [](Program& p) {
       Tensor Y = p.out({5, 18}, f32), Z = p.out({5, 18}, f32), X = p.in(floats({5, 18}));
       grid(1, [&](Index) {
         parallel(5, 18, [&](Index i, Index j) { Y(i, j) = X(i, j) + 1.0f; });
         parallel(5, 18, [&](Index i, Index j) { Z(i, j) = Y(4 - i, j) + Y(i, 17 - j); });
         parallel(5, 18, [&](Index i, Index j) { Y(i, j) = Z(i, j); });
       });
     }},
    {"extents known at run time, of rank 1 to 3",
     [](Program& p) {
       Dim N = p.dim("N"), M = p.dim("M");
       Tensor X = p.in(floats({3, 19}), {N, M}), Y = p.out(Data::full({3, 19}, f32, 1), {N, M}),
              Z = p.out(Data::full({3, 3, 19}, f32, 1), {N, N, M});
       Expr few = p.scalar(0, i32);
       grid(1, [&](Index) {
         parallel(N, M, [&](Index i, Index j) { Y(i, j) = X(i, j) * 2.0f; });
         parallel(N, N, M, [&](Index i, Index j, Index k) { Z(i, j, k) = X(i, k) + X(j, M - 1 - k); });
         parallel(few, M, [&](Index i, Index j) { Y(i, j) = -1.0f; });
         parallel(few, [&](Index i) { Y(i, i) = -1.0f; });
       });
     }},
    {"atomics",
     [](Program& p) {
       Tensor X = p.in(ints({64})), I = p.zeroed({8}, i32), L = p.inout(Data::full({3}, i64, 5)),
              U = p.inout(Data::full({4}, u32, 12)), F = p.zeroed({24}, f32), D = p.zeroed({3}, f64),
              H = p.zeroed({3}, f16), B = p.zeroed({3}, bf16), C = p.out({8}, i32);
       grid(16, [&](Index b) {
         Shared count({8}, i32);
         clear(count);
         parallel(4, [&](Index i) {
           Expr x = X(b * 4 + i);
           atomic_add(I(floormod(x, 8)), 1);
           atomic_add(count(floormod(x, 8)), x);
           atomic_max(count((i + 1) % 8), x);
           atomic_add(L(0), i64(x));
           atomic_max(L(1), i64(x));
           atomic_min(L(2), i64(x));
           atomic_or(U(0), u32(1) << u32(x + 9));
           atomic_and(U(1), u32(x + 20));
           atomic_add(U(2), u32(x + 9));
           atomic_min(U(3), u32(x + 10));
           atomic_add(F(0), f32(x));
           atomic_max(F(1), f32(x));
           atomic_min(F(2), f32(x));
           atomic_add(F(x + 12), 0.5f);
           atomic_add(D(0), f64(x));
           atomic_max(D(1), f64(x));
           atomic_min(D(2), f64(x));
           atomic_add(H(0), 1.0f);
           atomic_max(H(1), f32(x));
           atomic_min(H(2), f32(x));
           atomic_add(B(0), 1.0f);
           atomic_max(B(1), f32(x));
           atomic_min(B(2), f32(x));
         });
         when(b == 3, [&] { copy(count, C); });
       });
     }},
    {"accumulation of tiles",
     [](Program& p) {
       Tensor X = p.in(floats({6, 5, 9})), S = p.zeroed({7, 11}, f32), O = p.zeroed({7, 11}, f32),
              M = p.inout(floats({7, 11}, 7)), N = p.inout(floats({7, 11}, 8)), I = p.zeroed({2, 7, 11}, i32),
              H = p.zeroed({7, 11}, bf16), D = p.zeroed({7, 11}, f64);
       grid(6, [&](Index b) {
         Fragment x = load(X.slice(b), {5, 9});
         accumulate(S.at(b - 2, 3), x);
         accumulate(O.at(b % 3, b - 3), x, {.order = 5 - b});
         atomic_max(M.at(b), x);
         atomic_min(N.at(b), x);
         Fragment k({5, 9}, i32);
         parallel(5, 9, [&](Index i, Index j) { k(i, j) = i32(x(i, j)); });
         atomic_add(I.slice(b % 2).at(1, 1), k);
         accumulate(H.at(0, b), x, {.order = b});
         accumulate(D.at(2, 2), x);
       });
       grid(2, [&](Index b) {
         Shared s({9, 5}, f32);
         fill(s, 0.5f);
         accumulate(O.slice(range(2, 5)).at(-1, 2), s.T(), {.order = i64(b)});
       });
     }},
};
class CpuElements : public OnEverySet {};
TEGULA_ON_EVERY_SET(CpuElements);
TEST_P(CpuElements, AgreeWithTheInterpreter) { expect_agreement(element_cases); }

TEST(CudaElements, CasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(element_cases); }

}  // namespace elements_test
}  // namespace tegula::codegen

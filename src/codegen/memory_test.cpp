// Views, copies, gathers, atomics and elements on the CPU executor: the same as the interpreter's.
#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace {

using namespace lang;
using lang::Tensor;

const Case view_cases[] = {
    {"windows that hang over every side",
     [](Program& p) {
       Tensor X = p.in(ints({10, 21})), Y = p.out({6, 8, 20}, i32), Z = p.out({10, 21}, i32);
       Tensor at = p.in(list({-3, -5, 4, 18, 9, 0, 100, 3, -8, 2, 2, -100}));
       grid(6, [&](Index b) {
         Shared s({8, 20}, i32);
         copy(X.at(at(b * 2), at(b * 2 + 1)), s, {.fill = 77});
         copy(s, Y.slice(b));
       });
       grid(1, [&](Index) {
         Shared s({8, 20}, i32);
         parallel(8, 20, [&](Index i, Index j) { s(i, j) = i * 20 + j; });
         copy(s, Z.at(-3, 5));
       });
     }},
    {"slices whose limits are read from memory",
     [](Program& p) {
       Tensor X = p.in(floats({4, 30, 5})), begin = p.in(list({0, 3, 3, 17, 40, -2})),
              Y = p.out({5, 4, 16, 5}, f32), Z = p.out({5, 30}, f32);
       grid(5, 4, [&](Index b, Index h) {
         Tensor x = X.slice(h, range(begin(b), begin(b + 1)));
         Shared s({16, 5}, f32);
         copy(x.at(1), s, {.fill = -1});
         copy(s, Y.slice(b, h));
       });
       grid(5, [&](Index b) {
         Tensor z = Z.slice(b).slice(range(begin(b), begin(b + 1)));
         parallel(30, [&](Index i) { z(i - 3) = f32(i); });
         parallel(2, [&](Index i) { z(i * 50 + 40) = 9.0f; });
       });
     }},
    {"reversed, strided, transposed and inner tensors",
     [](Program& p) {
       const Data x = floats({12, 33}), y = Data::full({12, 33}, f32, 1);
       for (const auto& part :
            {reversed(x, 0), reversed(x, 1), every_other(x, 0), every_other(x, 1), inner(x), Given(x)}) {
         Tensor X = p.in(part), Y = p.out({part.part(y), [part](const Data&d) { return d; }});
         Given written{y.clone(), part.part};
         Tensor V = p.out(written);
         grid(3, [&](Index b) {
           Shared s({5, 40}, f32);
           copy(X.at(b * 5), s);
           parallel(5, 40, [&](Index i, Index j) { s(i, j) *= 2.0f; });
           copy(s, V.at(b * 5));
           parallel(5, 33, [&](Index i, Index j) { Y(b * 5 + i, j) = X(b * 5 + i, j); });
         });
       }
       Tensor X = p.in(transposed(x)), V = p.out({y.clone(), transposed(y).part}), U = p.out({33, 12}, f32);
       grid(1, [&](Index) {
         Fragment f = load(X, {33, 12});
         copy(f, V);
         parallel(33, 12, [&](Index i, Index j) { U(i, j) = X(i, j) - f(i, j); });
         parallel(12, 33, [&](Index j, Index i) { U(i, j) += X(i, j); });
       });
     }},
    {"an index that drops a dimension, in and out of range",
     [](Program& p) {
       Tensor X = p.in(floats({5, 3, 18})), rows = p.in(list({0, -1, 4, 5, 2})), Y = p.out({5, 18}, f32),
              Z = p.out({5, 18}, f32), U = p.out({5, 18}, f32);
       grid(5, [&](Index b) {
         Shared s({18}, f32), t({2, 18}, f32);
         copy(X.slice(rows(b), 1), s, {.fill = 3});
         copy(s, Y.slice(b));
         copy(X.slice(rows(b), all, all).at(1), t);
         copy(t.slice(1), Z.slice(b));
         copy(s, U.slice(rows(b)));
       });
     }},
    {"reshaped tensors and tiles",
     [](Program& p) {
       Dim N = p.dim("N");
       Tensor X = p.in(floats({6, 4, 5}), {N, 4, 5}), Y = p.out(Data::full({6, 20}, f32, 1), {N, 20}),
              Z = p.out({4, 30}, f32);
       grid(N, [&](Index b) {
         Shared s({20}, f32);
         copy(X.reshape({N, 20}).slice(b), s);
         Y(b, 3) = X.reshape({N * 20})(b * 20 + 3);
         Fragment f({4, 5}, f32);
         copy(s.reshape({4, 5}), f);
         parallel(4, 5, [&](Index i, Index j) { f(i, j) += f32(i); });
         copy(f.reshape({20}), Y.slice(b));
       });
       grid(1, [&](Index) {
         Shared s({10, 12}, f32), t({3, 5, 8}, f32);
         copy(X.reshape({N * 2, 10}).at(1, -1), s);
         parallel(120, [&](Index i) { s.reshape({120})(i) += 0.5f; });
         copy(s.reshape({3, 5, 8}), t);
         parallel(3, 5, 8, [&](Index i, Index j, Index k) { t(i, j, k) *= f32(i + 1); });
         copy(t.reshape({4, 30}), Z);
       });
     }},
    {"slices and transposes of tiles",
     [](Program& p) {
       Tensor X = p.in(floats({7, 19})), Y = p.out({19, 7}, f32), Z = p.out({3, 7}, f32), V = p.out({7}, f32),
              U = p.out({19, 7}, f32);
       grid(1, [&](Index) {
         Shared s({7, 19}, f32), t({19, 7}, f32), u({19, 7}, f32);
         copy(X, s);
         copy(s.T(), Y);
         copy(s.T(), t);
         parallel(7, 19, [&](Index i, Index j) { t.T()(i, j) += 1.0f; });
         copy(t.slice(range(4, 7)), Z);
         Expr row = i32(X(0, 0)) + 20;
         copy(s.slice(all, 3), V);
         clear(u);
         fill(u.slice(range(2, 5), range(1, 3)), 4.0f);
         copy(s.slice(range(1, 4), range(0, 7)), u.slice(range(9, 12)));
         copy(u, U);
         V(2) = f32(row);
       });
     }},
    {"scalars of rank 0",
     [](Program& p) {
       Tensor X = p.in(floats({17})), Y = p.out({4}, f32), S = p.in(Data::full({}, f32, 3)),
              T = p.out({}, i32);
       grid(1, [&](Index) {
         Fragment x = load(X, {17});
         Y(0) = reduce_sum(x).scalar();
         Fragment total({}, f32, 1.0f);
         reduce_sum(x, total);
         reduce_max(x, total);
         Y(1) = total.scalar();
         Fragment s({}, f32);
         copy(S, s);
         Y(2) = s.scalar() * 2.0f;
         Fragment t({}, i32, 5);
         copy(t, T);
       });
     }},
};

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

const Case gather_cases[] = {
    {"rows from lists and functions",
     [](Program& p) {
       Tensor X = p.in(floats({9, 22})), rows = p.in(list({3, -1, 8, 0, 9, 3, 100, -50})),
              Y = p.out({3, 8, 22}, f32), Z = p.out({5, 24}, f32), R = p.in(reversed(floats({9, 22}), 1)),
              V = p.out({8, 20}, f32);
       grid(1, [&](Index) {
         Shared s({8, 22}, f32), which({8}, i32), t({5, 24}, f32);
         gather(X, rows, s);
         copy(s, Y.slice(0));
         parallel(8, [&](Index i) { which(i) = rows(7 - i); });
         gather(X, which, s);
         copy(s, Y.slice(1));
         gather(
             X, [&](Index i) { return i * 2 - 1; }, s);
         copy(s, Y.slice(2));
         gather(
             X.slice(range(2, 6), range(1, 20)),
             [&](Index i) {
               Expr row = rows(i);
               return row + i;
             },
             t);
         copy(t, Z);
         Fragment f({8, 20}, f32);
         gather(R, rows, f);
         copy(f, V);
       });
     }},
    {"rows of more axes, and elements",
     [](Program& p) {
       Tensor X = p.in(floats({6, 3, 10})), rows = p.in(list({5, 2, 7, 0})), Y = p.out({4, 3, 10}, f32),
              Z = p.out({4}, f32), V = p.out({4, 10}, f32), L = p.in(floats({9}));
       grid(1, [&](Index) {
         Shared s({4, 3, 10}, f32), t({4}, f32), u({4, 10}, f32);
         gather(X, rows, s);
         copy(s, Y);
         gather(L, rows, t);
         copy(t, Z);
         gather(X.slice(all, rows(1)), rows, u);
         copy(u, V);
       });
     }},
    {"gathered operands of products",
     [](Program& p) {
       Tensor A = p.in(Data::random_integers({7, 12}, f16, 1, -4, 5)),
              B = p.in(Data::random_integers({40, 12}, f16, 2, -4, 5)),
              C = p.in(Data::random_integers({40, 21}, f16, 3, -4, 5)),
              G = p.in(transposed(Data::random_integers({21, 40}, f16, 4, -4, 5))),
              rows = p.in(Data::random_integers({20}, i32, 5, -3, 44)), Y = p.out({3, 7, 21}, f32);
       grid(1, [&](Index) {
         Shared a({7, 12}, f16), b({20, 12}, f16), c({12, 21}, f16), d({12, 20}, f16), e({20, 21}, f16);
         copy(A, a);
         gather(B, rows, b);
         gather(C, rows, c);
         Fragment x({7, 20}, f32, 0), y({7, 21}, f32, 0), z({7, 21}, f32, 0);
         gemm(a, b.T(), x);
         gemm(a, c, y);
         copy(y, Y.slice(0));
         Fragment h = x.to(f16);
         gather(G, rows, e);
         gemm(h, e, z);
         copy(z, Y.slice(1));
         copy(x, Y.slice(2));
       });
     }},
};

class CpuMemory : public OnEverySet {};
TEGULA_ON_EVERY_SET(CpuMemory);
TEST_P(CpuMemory, ViewsAgreeWithTheInterpreter) { expect_agreement(view_cases); }
TEST_P(CpuMemory, ElementsAgreeWithTheInterpreter) { expect_agreement(element_cases); }
TEST_P(CpuMemory, GathersAgreeWithTheInterpreter) { expect_agreement(gather_cases); }

TEST(CudaMemory, ViewCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(view_cases); }
TEST(CudaMemory, ElementCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(element_cases); }
TEST(CudaMemory, GatherCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(gather_cases); }

}  // namespace
}  // namespace tegula::codegen

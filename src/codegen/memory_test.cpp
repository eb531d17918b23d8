// Views, copies and gathers on the CPU executor, and in CUDA text: the same as the interpreter's.
#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace memory_test {

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
         Shared row({1}, f32);
         copy(s.reshape({1}), row);
         copy(row, Y.at(3));
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
TEST_P(CpuMemory, GathersAgreeWithTheInterpreter) { expect_agreement(gather_cases); }

TEST(CudaMemory, ViewCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(view_cases); }
TEST(CudaMemory, GatherCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(gather_cases); }

}  // namespace memory_test
}  // namespace tegula::codegen

// Control flow on the CPU executor: the same as the interpreter's, printed text and errors included.
#include <algorithm>

#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/compare.hpp"

namespace tegula::codegen {
namespace control_test {

using namespace lang;
using lang::Tensor;

const Data numbers(std::int64_t n) { return Data::random_integers({n}, i32, 5, -9, 10); }

const Case control_cases[] = {
    {"exit_if, at the top and in a loop",
     [](Program& p) {
       Tensor X = p.in(numbers(7)), Y = p.out({7, 4}, i32);
       grid(7, [&](Index b) {
         Y(b, 0) = b;
         exit_if(X(b) < 0);
         serial(3, [&](Index i) {
           exit_if(i + b > 5);
           Y(b, i + 1) = i;
         });
         Y(b, 0) = 100;
       });
     }},
    {"loop_while and break_if",
     [](Program& p) {
       Tensor Y = p.out({12}, i32), Z = p.out({12}, i32);
       grid(12, [&](Index b) {
         Var n = b + 1, steps = 0;
         loop_while(
             [&] { return Expr(n) != 1; },
             [&] {
               when(Expr(n) % 2 == 0, [&] { n = Expr(n) / 2; }).otherwise([&] { n = Expr(n) * 3 + 1; });
               steps += 1;
             });
         Y(b) = steps;
         Var sum = 0;
         serial(100, [&](Index i) {
           break_if(i * i > b);
           sum += i;
           Var inner = 0;
           serial(10, [&](Index j) {
             inner += 1;
             break_if(j == i);
           });
           sum += Expr(inner) * 100;
         });
         Z(b) = sum;
       });
     }},
    {"when and otherwise for the block",
     [](Program& p) {
       Tensor X = p.in(numbers(9)), Y = p.out({9}, i32);
       grid(9, [&](Index b) {
         Expr x = X(b);
         Var y = 0;
         when(x > 3, [&] { when(x > 6, [&] { y = 1; }).otherwise([&] { y = 2; }); }).otherwise([&] {
           when(x < -3, [&] { y = 3; });
           when(x == 0, [&] { Y(b) = 50; });
         });
         when(x != 0, [&] { Y(b) = y; });
       });
     }},
    {"when and otherwise in parallel",
     [](Program& p) {
       Tensor X = p.in(Data::random_integers({5, 37}, i32, 3, -9, 10)), Y = p.out({5, 37}, i32),
              Z = p.out({5, 37}, i32);
       Expr limit = p.scalar(3, i32);
       grid(5, [&](Index b) {
         Shared s({37}, i32);
         parallel(37, [&](Index i) {
           Expr x = X(b, i);
           Var y = x, z = 7;
           when(x > limit, [&] {
             y = x * 2;
             when(i % 3 == 0, [&] { z = y; }).otherwise([&] { y = Expr(y) + Expr(z); });
             s(i) = 1;
           }).otherwise([&] {
             when(limit > 2, [&] { z = -1; });
             when(x == 0, [&] { y = 0; });
             s(i) = 2;
           });
           Y(b, i) = y;
           when(i % 2 == 0, [&] { Z(b, i) = Expr(z) * 10 + s(i); });
         });
       });
     }},
    {"loops in parallel",
     [](Program& p) {
       Tensor X = p.in(numbers(21)), N = p.in(Data::from<std::int32_t>({4, 0, -2, 9})),
              Y = p.out({4, 21}, i32), Z = p.out({4, 21}, i32), V = p.out({21}, i32);
       grid(4, [&](Index b) {
         Expr n = N(b);
         parallel(21, [&](Index i) {
           Var sum = 0, other = 0, rounds = 0;
           serial(n, [&](Index k) { sum += X((i + k) % 21) * (k + 1); });
           serial(range(i / 2, i), [&](Index k) { other += k; });
           loop_while([&] { return Expr(other) > 10; },
                      [&] {
                        other -= 7;
                        rounds += 1;
                        break_if(Expr(rounds) > 4);
                      });
           Y(b, i) = sum;
           Z(b, i) = Expr(other) + Expr(rounds) * 1000;
         });
       });
       // The bounds are read from memory, the same for all iterations.
       grid(1, [&](Index) {
         parallel(21, [&](Index i) {
           Var sum = 0;
           Expr last = N(3);
           serial(range(N(1), last), [&](Index k) { sum += X(i) * k; });
           V(i) = sum;
         });
       });
     }},
    {"pipelined loops of 0, 1 and more iterations",
     [](Program& p) {
       Tensor N = p.in(Data::from<std::int32_t>({0, 1, 2, 5, -3})), X = p.in(Data::arange(40, f32)),
              Y = p.out({5, 8}, f32);
       grid(5, [&](Index b) {
         Fragment acc({8}, f32, 0);
         pipelined(N(b), {.stages = 3}, [&](Index k) {
           Shared s({8}, f32);
           copy(X.at(k * 8), s);
           parallel(8, [&](Index i) { acc(i) += s(i); });
         });
         pipelined(range(2, N(b)), [&](Index k) { parallel(8, [&](Index i) { acc(i) += f32(k); }); });
         unrolled(2, [&](Index k) { parallel(8, [&](Index i) { acc(i) *= f32(k + 1); }); });
         copy(acc, Y.slice(b));
       });
     }},
    {"each_group",
     [](Program& p) {
       Tensor X = p.in(Data::random_integers({8, 16}, f32, 3, -4, 5)), Y = p.out({8, 16}, f32),
              Z = p.out({2}, f32);
       grid(1, [&](Index) {
         Shared s({8, 16}, f32);
         copy(X, s);
         each_group(4, Group::warp, [&](Index w) {
           Fragment mine({16}, f32, 0);
           Var scale = 1.0f;
           when(w == 2, [&] { scale = 3.0f; });
           serial(2, [&](Index r) {
             parallel(16, [&](Index i) { mine(i) += s(w * 2 + r, i) * Expr(scale); });
             copy(mine, Y.slice(w * 2 + r));
           });
         });
         each_group(2, Group::warpgroup, [&](Index w) {
           Fragment f = load(X.slice(w), {16});
           Z(w) = reduce_sum(f).scalar();
         });
       });
     }},
    {"several grids, workspaces and cleared outputs",
     [](Program& p) {
       Dim N = p.dim("N");
       Tensor X = p.in(numbers(13), {N}), Y = p.out(Data::full({13}, i32, 1), {N}), Z = p.zeroed({13}, i32);
       Tensor W = p.workspace({N, 2}, i32), C = p.workspace({N}, i32, true);
       grid(N, [&](Index b) {
         W(b, 0) = X(b) + 1;
         W(b, 1) = b;
       });
       grid(N, [&](Index b) { atomic_add(C(W(N - 1 - b, 1) / 2), W(b, 0)); });
       grid(ceildiv(N, 2), 2, [&](Index b, Index c) {
         Y(b * 2 + c) = C(b * 2 + c);
         when(c == 0, [&] { Z(b) = W(b, 0); });
       });
       grid(N * 0, [&](Index b) { Y(b) = -1; });
     }},
    {"orders of grids",
     [](Program& p) {
       Tensor Y = p.out({5, 4, 3}, i32);
       Expr n = p.scalar(5, i32);
       const auto body = [&](Index i, Index j, Index k) { Y(i, j, k) = i * 100 + j * 10 + k; };
       for (const Order& order :
            {Order::row(), Order::column(), Order::grouped(3),
             Order::heavy_first([](Index i, Index j, Index k) { return i * 7 % 5 + j - k; }),
             Order::heavy_first([](Index i, Index, Index) { return i; }, n - 3),
             Order::heavy_first([](Index, Index j, Index) { return -j; }, n - 10),
             Order::heavy_first([](Index i, Index, Index) { return i; }, 1 << 29),
             Order::heavy_first([](Index i, Index, Index) { return i; }, (1 << 29) + 1),
             Order::heavy_first([](Index, Index, Index k) { return k; }, 0x7fffffff)}) {
         grid(5, 4, 3, {.order = order}, body);
       }
     }},
    {"variables of every type",
     [](Program& p) {
       Tensor Y = p.out({6}, f64), Z = p.out({5, 20}, f32);
       Expr flag = p.scalar(true, boolean), big = p.scalar(std::int64_t{1} << 40, i64),
            real = p.scalar(0.5, f64), small = p.scalar(0.25f, f32), bits = p.scalar(0xfffffff0u, u32);
       grid(1, [&](Index) {
         Var b = flag, l = big, d = real, f = small, u = bits;
         serial(3, [&](Index i) {
           b = !Expr(b);
           l += i64(i);
           d *= 1.5;
           f += 0.5f;
           u += 7u;
         });
         Y(0) = f64(i32(Expr(b)));
         Y(1) = f64(Expr(l));
         Y(2) = d;
         Y(3) = f64(Expr(f));
         Y(4) = f64(Expr(u));
         Y(5) = f64(i32(select(Expr(b), 3, 4)));
         parallel(20, [&](Index i) {
           Var b2 = i % 2 == 0, l2 = big + i64(i), d2 = real, f2 = small, u2 = bits;
           when(i > 4, [&] {
             b2 = !Expr(b2);
             l2 -= big;
             d2 += f64(i);
             f2 *= 2.0f;
             u2 = Expr(u2) >> 1u;
           });
           Z(0, i) = f32(i32(Expr(b2)));
           Z(1, i) = f32(i32(Expr(l2) % 1000));
           Z(2, i) = f32(Expr(d2));
           Z(3, i) = f2;
           Z(4, i) = f32(Expr(u2));
         });
       });
     }},
};

class CpuControl : public OnEverySet {};
TEGULA_ON_EVERY_SET(CpuControl);
TEST_P(CpuControl, AgreesWithTheInterpreter) { expect_agreement(control_cases); }

// Which block has which index is part of the texts for GPUs.
TEST(EmulatedControl, OrdersOfGridsAgreeWithTheInterpreter) {
  for (const Case& one : control_cases)
    if (one.name == std::string("orders of grids"))
      expect_agreement(std::span(&one, 1), tegula::Target::emulated());
}

TEST(CudaControl, ControlCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(control_cases); }

}  // namespace control_test
}  // namespace tegula::codegen

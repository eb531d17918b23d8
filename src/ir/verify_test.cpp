#include "ir/verify.hpp"

#include <gtest/gtest.h>

#include "ir/testing/kernels.hpp"
#include "tegula/lang.hpp"

namespace tegula::ir {
namespace {

using namespace testing;

const Case cases[] = {
    {"", [](const Material& p) { return Body{p.store(p.C)}; }},
    {"",
     [](const Material& p) {
       return Body{p.declare(p.s), st(Copy{window(whole(p.A), p.zero, 8), whole(p.s), nullptr})};
     }},
    {"",
     [](const Material& p) {
       return Body{p.declare(p.s),
                   p.declare(p.h),
                   p.declare(p.f),
                   p.declare(p.row),
                   st(Gemm{whole(p.h), whole(p.h), whole(p.f), false, {}}),
                   st(Reduce{ReduceOp::max, whole(p.f), 1, whole(p.row), true}),
                   st(Accumulate{AtomicOp::add, indexed(whole(p.C), p.zero), whole(p.row), nullptr})};
     }},
    {"",
     [](const Material& p) {
       return Body{st(DeclareVar{p.n, p.zero}), st(Let{p.v, variable(p.n)}),
                   st(Assign{p.n, variable(p.v) + 1})};
     }},
    {"",
     [](const Material& p) {
       return Body{st(While{
           {st(Load{p.x, element(p.A, {p.zero, p.zero})})}, lt(variable(p.x), p.one), {st(Break{p.yes})}})};
     }},
    {"inputs are not written", [](const Material& p) { return Body{p.store(p.A)}; }},
    {"inside its scope", [](const Material& p) { return Body{p.store(p.s)}; }},
    {"inside its scope",
     [](const Material& p) {
       return Body{st(Let{p.v, p.I})};
     }},
    {"inside its scope",
     [](const Material& p) {
       return Body{p.loop(LoopKind::serial, {p.declare(p.s)}), p.store(p.s)};
     }},
    {"inside its scope",
     [](const Material& p) {
       return Body{st(If{p.yes, {st(Let{p.v, p.zero})}, {}}), st(Print{"", variable(p.v)})};
     }},
    {"inside its scope",
     [](const Material& p) {
       return Body{
           st(While{{st(Load{p.x, element(p.A, {p.zero, p.zero})})}, p.yes, {st(Print{"", variable(p.x)})}})};
     }},
    {"defined once",
     [](const Material& p) {
       return Body{st(Let{p.v, p.zero}), st(Let{p.v, p.zero})};
     }},
    {"declared once",
     [](const Material& p) {
       return Body{p.declare(p.s), p.declare(p.s)};
     }},
    {"type of the result",
     [](const Material& p) {
       return Body{st(Let{p.v, make(Op::add, i32, {p.zero, p.one})})};
     }},
    {"type of its variable",
     [](const Material& p) {
       return Body{st(Let{p.v, p.one})};
     }},
    {"one type", [](const Material& p) { return Body{st(Exit{lt(p.zero, p.one)})}; }},
    {"remainders",
     [](const Material& p) {
       return Body{st(Let{p.x, p.one % p.one})};
     }},
    {"an index for each axis",
     [](const Material& p) {
       return Body{st(Store{element(p.C, {p.zero}), p.one})};
     }},
    {"indices are i32 or i64",
     [](const Material& p) {
       return Body{st(Store{element(p.C, {p.zero, p.one}), p.one})};
     }},
    {"within a kind",
     [](const Material& p) {
       return Body{st(Store{element(p.C, {p.zero, p.zero}), p.zero})};
     }},
    {"no operand is missing",
     [](const Material& p) {
       return Body{st(Store{element(p.C, {p.zero, p.zero}), nullptr})};
     }},
    {"one side of a copy is a tile",
     [](const Material& p) {
       return Body{st(Copy{whole(p.A), whole(p.C), nullptr})};
     }},
    {"one rank",
     [](const Material& p) {
       return Body{p.declare(p.row), st(Copy{whole(p.A), whole(p.row), nullptr})};
     }},
    {"between two buffers",
     [](const Material& p) {
       return Body{p.declare(p.s), st(Copy{whole(p.s), transposed(whole(p.s)), nullptr})};
     }},
    {"[m, k], [k, n]",
     [](const Material& p) {
       const BufferPtr wide = tile("wide", Space::shared, f16, {8, 16});
       return Body{p.declare(p.h), p.declare(wide), p.declare(p.f),
                   st(Gemm{whole(wide), whole(p.h), whole(p.f), false, {}})};
     }},
    {"have one type",
     [](const Material& p) {
       return Body{p.declare(p.h), p.declare(p.s), p.declare(p.f),
                   st(Gemm{whole(p.h), whole(p.s), whole(p.f), false, {}})};
     }},
    {"gemm accumulates in f32",
     [](const Material& p) {
       const BufferPtr c = tile("c", Space::shared, bf16, {8, 8});
       return Body{p.declare(p.h), p.declare(c), st(Gemm{whole(p.h), whole(p.h), whole(c), false, {}})};
     }},
    {"leaves out one axis",
     [](const Material& p) {
       return Body{p.declare(p.s), p.declare(p.f),
                   st(Reduce{ReduceOp::sum, whole(p.s), 1, whole(p.f), true})};
     }},
    {"constant positive extents",
     [](const Material& p) {
       View view = whole(p.s);
       view.extents[0] = variable(p.N);
       return Body{p.declare(p.s), st(Fill{view, p.one})};
     }},
    {"belongs to one dimension",
     [](const Material& p) {
       View view = whole(p.s);
       view.dims[0].axis = 1;
       return Body{p.declare(p.s), st(Fill{view, p.one})};
     }},
    {"only element statements",
     [](const Material& p) {
       return Body{p.declare(p.s), p.loop(LoopKind::parallel, {st(Fill{whole(p.s), p.one})})};
     }},
    {"only element statements",
     [](const Material& p) {
       return Body{
           p.loop(LoopKind::parallel, {st(For{LoopKind::parallel, {p.j}, {p.zero}, {p.zero}, 0, {}})})};
     }},
    {"only element statements",
     [](const Material& p) { return Body{p.loop(LoopKind::parallel, {st(Exit{p.yes})})}; }},
    {"a loop that is open", [](const Material& p) { return Body{st(Break{p.yes})}; }},
    {"a loop that is open",
     [](const Material& p) { return Body{p.loop(LoopKind::parallel, {st(Break{p.yes})})}; }},
    {"assign their own variables",
     [](const Material& p) {
       return Body{st(DeclareVar{p.n, p.zero}), p.loop(LoopKind::parallel, {st(Assign{p.n, p.zero})})};
     }},
    {"read by a let alone",
     [](const Material& p) {
       return Body{st(DeclareVar{p.n, p.zero}), st(Let{p.v, variable(p.n) + 1})};
     }},
    {"only variables that change",
     [](const Material& p) {
       return Body{st(Let{p.v, p.zero}), st(Assign{p.v, p.zero})};
     }},
    {"a group does not end the block",
     [](const Material& p) { return Body{p.loop(LoopKind::warps, {st(Exit{p.yes})})}; }},
    {"only parallel has more",
     [](const Material& p) {
       return Body{st(For{LoopKind::serial, {p.i, p.j}, {p.zero, p.zero}, {p.zero, p.zero}, 0, {}})};
     }},
    {"begin at 0",
     [](const Material& p) {
       return Body{st(For{LoopKind::parallel, {p.i}, {int32(1)}, {int32(2)}, 0, {}})};
     }},
    {"constant range",
     [](const Material& p) {
       return Body{st(For{LoopKind::unrolled, {p.i}, {p.zero}, {variable(p.N)}, 0, {}})};
     }},
    {"stages are of pipelined",
     [](const Material& p) {
       return Body{st(For{LoopKind::serial, {p.i}, {p.zero}, {p.zero}, 2, {}})};
     }},
    {"rows and tests only read",
     [](const Material& p) {
       return Body{p.declare(p.s), st(Gather{whole(p.A), whole(p.s), p.i, {p.store(p.C)}, p.I})};
     }},
    {"a condition is a bool",
     [](const Material& p) {
       return Body{st(Assert{p.zero, ""})};
     }},
    {"a tensor or a shared tile",
     [](const Material& p) {
       return Body{p.declare(p.f), st(Atomic{AtomicOp::add, element(p.f, {p.zero, p.zero}), p.one})};
     }},
    {"an atomic exists",
     [](const Material& p) {
       return Body{st(Atomic{AtomicOp::bit_or, element(p.C, {p.zero, p.zero}), p.one})};
     }},
};

TEST(Verify, EveryRuleOfStatements) {
  for (const Case& c : cases) {
    const Material material;
    const std::string message = message_of(material.kernel(c.body(material)));
    if (std::string(c.rule).empty()) {
      EXPECT_EQ(message, "");
    } else {
      EXPECT_NE(message.find(c.rule), std::string::npos) << "wanted: " << c.rule << "\ngot: " << message;
    }
  }
}

TEST(Verify, RulesOfTheSignature) {
  const Material p;
  Kernel k = p.kernel({});
  k.grids[0].extents[0] = variable(p.bx);
  expect_broken(k, "an extent of a grid depends on dims and scalars");
  k = p.kernel({});
  k.grids.clear();
  expect_broken(k, "a kernel has a grid");
  k = p.kernel({});
  k.parameters.push_back({p.s, nullptr});
  expect_broken(k, "parameters are inputs, outputs or inouts");
  k = p.kernel({});
  k.parameters.push_back({p.A, nullptr});
  expect_broken(k, "a tensor is declared once");
  k = p.kernel({});
  k.requirements.push_back({variable(p.N), "", Loc::current()});
  expect_broken(k, "a requirement is a bool");
  k = p.kernel({});
  k.dims[0].multiple = 0;
  expect_broken(k, "a promised multiple is positive");
  k = p.kernel({});
  k.may_alias = {{p.A, p.s}};
  expect_broken(k, "only tensors of the kernel alias");
  k = p.kernel({});
  k.grids[0].hints.order = GridOrder::heavy_first;
  expect_broken(k, "heavy_first has a cost");
  k.grids[0].hints.cost = variable(p.bx) + variable(p.N);
  EXPECT_NO_THROW(verify(k));
  k.grids[0].hints.together = variable(p.N);
  EXPECT_NO_THROW(verify(k));
  k.grids[0].hints.together = variable(p.bx);
  expect_broken(k, "a number of blocks");
}

}  // namespace
}  // namespace tegula::ir

// What the front end makes is what the contract asks for.
namespace tegula::lang {
namespace {

Kernel program() {
  return kernel("program", [] {
    Dim N("N"), M("M");
    N.multiple_of(8);
    auto A = input("A", {N, 4, 64}, bf16), rows = input("rows", {M}, i32);
    auto C = output("C", {M, 64}, f32);
    Expr scale = scalar("scale", f32);
    require(N > 0, "rows");
    grid(ceildiv(M, 64), 4, {.order = Order::grouped(4)}, [&](Index bx, Index h) {
      Shared As({64, 64}, bf16);
      Fragment acc({64, 64}, f32, 0);
      exit_if(bx * 64 >= M);
      gather(
          A.slice(all, h), [&](Index r) -> Expr { return rows(bx * 64 + r); }, As);
      pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index n) {
        Shared Bs({64, 64}, bf16);
        copy(A.slice(all, h).at(n * 64), Bs);
        gemm(As, Bs.T(), acc);
        when(n > 3, [&] { clear(acc); }).otherwise([&] {
          parallel(acc,
                   [&](Index i, Index j) { acc(i, j) = select(n * 64 + j < N, acc(i, j) * scale, -inf); });
        });
        break_if(n == 7);
      });
      Var k = 0;
      loop_while([&] { return k < 3; }, [&] { k += 1; });
      copy(acc, C.at(bx * 64));
    });
  });
}

TEST(Verify, AcceptsProgramsOfTheLanguage) { EXPECT_NO_THROW(ir::verify(*program().ir())); }

}  // namespace
}  // namespace tegula::lang

// Statements that break a rule.
#include "ir/testing/kernels.hpp"

namespace tegula::ir {
namespace {

using namespace testing;

Body declared(const Material& p, Stmt last) {
  return {p.declare(p.s), p.declare(p.f), p.declare(p.h), p.declare(p.row), std::move(last)};
}
For loop(const Material& p, LoopKind kind, Expr end) {
  return {kind, {p.i}, {p.zero}, {std::move(end)}, 0, {}};
}

const Case statements[] = {
    {"a view shows a buffer",
     [](auto& p) {
       return Body{st(Fill{View{}, p.one})};
     }},
    {"every dimension has its way of addressing",
     [](auto& p) {
       View view = whole(p.s);
       view.dims.pop_back();
       return declared(p, st(Fill{view, p.one}));
     }},
    {"offsets, limits and extents are i32 or i64",
     [](auto& p) {
       View view = whole(p.s);
       view.dims[0].offset = p.one;
       return declared(p, st(Fill{view, p.one}));
     }},
    {"a let defines a value",
     [](auto& p) {
       return Body{st(Let{p.n, p.zero})};
     }},
    {"values exist in",
     [](auto& p) {
       return Body{st(Let{named("x", VariableKind::let, f16), p.one})};
     }},
    {"a load defines a value",
     [](auto& p) {
       return Body{st(Load{p.n, element(p.A, {p.zero, p.zero})})};
     }},
    {"widened to their compute type",
     [](auto& p) {
       return Body{st(Load{p.v, element(p.A, {p.zero, p.zero})})};
     }},
    {"a tile is declared", [](auto& p) { return Body{p.declare(p.A)}; }},
    {"a variable that changes is declared",
     [](auto& p) {
       return Body{st(DeclareVar{p.v, p.zero})};
     }},
    {"conditions of rows are bools",
     [](auto& p) {
       If branch{p.yes, {}, {}};
       branch.of_rows = {p.yes, p.zero};
       return Body{st(branch)};
     }},
    {"a number of warps is an i32 of a branch for rows",
     [](auto& p) {
       If branch{p.yes, {}, {}};
       branch.together = p.zero;
       return Body{st(branch)};
     }},
    {"a branch for rows changes rows of fragments only",
     [](auto& p) {
       If branch{p.yes, {st(Fill{whole(p.s), p.one})}, {}};
       branch.of_rows = {p.yes};
       return Body{p.declare(p.s), st(branch)};
     }},
    {"an atomic converts within a kind",
     [](auto& p) {
       return Body{st(Atomic{AtomicOp::add, element(p.C, {p.zero, p.zero}), p.zero})};
     }},
    {"two tiles of a copy have equal extents",
     [](auto& p) {
       const BufferPtr wide = tile("wide", Space::shared, f32, {8, 16});
       return Body{p.declare(p.s), p.declare(wide), st(Copy{whole(p.s), whole(wide), nullptr})};
     }},
    {"a copy converts within a kind",
     [](auto& p) {
       const BufferPtr n = tile("n", Space::shared, i32, {8, 8});
       return Body{p.declare(p.s), p.declare(n), st(Copy{whole(p.s), whole(n), nullptr})};
     }},
    {"the fill is a value of the source",
     [](auto& p) {
       return declared(p, st(Copy{window(whole(p.A), p.zero, 8), whole(p.s), p.zero}));
     }},
    {"a gather fills a tile",
     [](auto& p) {
       return Body{st(Gather{whole(p.A), whole(p.C), p.i, {}, p.I})};
     }},
    {"both sides of a gather have one rank",
     [](auto& p) {
       return declared(p, st(Gather{whole(p.A), whole(p.row), p.i, {}, p.I}));
     }},
    {"rows of two tiles have equal extents",
     [](auto& p) {
       const BufferPtr wide = tile("wide", Space::shared, f32, {8, 16});
       return Body{p.declare(p.s), p.declare(wide), st(Gather{whole(p.s), whole(wide), p.i, {}, p.I})};
     }},
    {"a gather converts within a kind",
     [](auto& p) {
       const BufferPtr n = tile("n", Space::shared, i32, {8, 8});
       return Body{p.declare(n), st(Gather{whole(p.A), whole(n), p.i, {}, p.I})};
     }},
    {"a gather is between two buffers",
     [](auto& p) {
       return declared(p, st(Gather{whole(p.s), whole(p.s), p.i, {}, p.I}));
     }},
    {"a gather defines an index",
     [](auto& p) {
       return declared(p, st(Gather{whole(p.A), whole(p.s), p.v, {}, p.zero}));
     }},
    {"a tile is filled",
     [](auto& p) {
       return Body{st(Fill{whole(p.C), p.one})};
     }},
    {"a fill converts within a kind",
     [](auto& p) {
       return declared(p, st(Fill{whole(p.s), p.zero}));
     }},
    {"operands of gemm are tiles",
     [](auto& p) {
       return declared(p, st(Gemm{whole(p.A), whole(p.h), whole(p.f), false, {}}));
     }},
    {"operands of gemm have rank 2",
     [](auto& p) {
       return declared(p, st(Gemm{whole(p.row), whole(p.h), whole(p.f), false, {}}));
     }},
    {"metadata of a sparse operand is a tile of u8 [m, k / 8]",
     [](auto& p) {
       const BufferPtr values = tile("values", Space::shared, f32, {8, 4}),
                       places = tile("places", Space::shared, i32, {8, 1});
       return Body{p.declare(values), p.declare(places), p.declare(p.s), p.declare(p.f),
                   st(Gemm{whole(values), whole(p.s), whole(p.f), false, {}, whole(places)})};
     }},
    {"the accumulator of gemm is no operand",
     [](auto& p) {
       return declared(p, st(Gemm{whole(p.s), whole(p.f), whole(p.f), false, {}}));
     }},
    {"a reduction is from a tile to a tile",
     [](auto& p) {
       return declared(p, st(Reduce{ReduceOp::sum, whole(p.A), 1, whole(p.row), true}));
     }},
    {"any and all are of bools",
     [](auto& p) {
       return declared(p, st(Reduce{ReduceOp::any, whole(p.s), 1, whole(p.row), true}));
     }},
    {"a reduction stays within a kind",
     [](auto& p) {
       const BufferPtr n = tile("n", Space::fragment, i32, {8});
       return Body{p.declare(p.s), p.declare(n), st(Reduce{ReduceOp::sum, whole(p.s), 1, whole(n), true})};
     }},
    {"a reduction is between two buffers",
     [](auto& p) {
       return declared(p, st(Reduce{ReduceOp::sum, whole(p.f), 1, indexed(whole(p.f), p.zero), true}));
     }},
    {"a scan is from a tile to a tile",
     [](auto& p) {
       return declared(p, st(Scan{ReduceOp::sum, whole(p.A), 1, whole(p.f)}));
     }},
    {"a scan runs along a dimension of its tile",
     [](auto& p) {
       return declared(p, st(Scan{ReduceOp::sum, whole(p.s), 2, whole(p.f)}));
     }},
    {"both sides of a scan have one shape",
     [](auto& p) {
       return declared(p, st(Scan{ReduceOp::sum, whole(p.s), 1, whole(p.row)}));
     }},
    {"a scan is a sum, a maximum or a minimum of numbers",
     [](auto& p) {
       return declared(p, st(Scan{ReduceOp::absmax, whole(p.s), 1, whole(p.f)}));
     }},
    {"a scan stays within a kind",
     [](auto& p) {
       const BufferPtr n = tile("n", Space::fragment, i32, {8, 8});
       return Body{p.declare(p.s), p.declare(n), st(Scan{ReduceOp::sum, whole(p.s), 1, whole(n)})};
     }},
    {"a scan is between two buffers",
     [](auto& p) {
       return declared(p, st(Scan{ReduceOp::sum, whole(p.f), 1, whole(p.f)}));
     }},
    {"starts of a scan are bools of its shape",
     [](auto& p) {
       return declared(p, st(Scan{ReduceOp::sum, whole(p.s), 1, whole(p.f), false, false, whole(p.row)}));
     }},
    {"a tile is accumulated into a tensor",
     [](auto& p) {
       return declared(p, st(Accumulate{AtomicOp::add, whole(p.s), whole(p.f), nullptr}));
     }},
    {"both sides have one rank",
     [](auto& p) {
       return declared(p, st(Accumulate{AtomicOp::add, whole(p.C), whole(p.row), nullptr}));
     }},
    {"an accumulation converts within a kind",
     [](auto& p) {
       const BufferPtr n = tile("n", Space::shared, i32, {8, 8});
       return Body{p.declare(n), st(Accumulate{AtomicOp::add, whole(p.C), whole(n), nullptr})};
     }},
    {"contributions to a tensor in one grid are all in order, or none is",
     [](auto& p) {
       Body body = declared(p, st(Accumulate{AtomicOp::add, whole(p.C), whole(p.s), p.zero}));
       body.push_back(st(Accumulate{AtomicOp::add, whole(p.C), whole(p.s), nullptr}));
       return body;
     }},
    {"the order is an integer",
     [](auto& p) {
       return declared(p, st(Accumulate{AtomicOp::add, whole(p.C), whole(p.s), p.one}));
     }},
    {"only the first of turns overwrites",
     [](auto& p) {
       Accumulate alone{AtomicOp::add, whole(p.C), whole(p.s), p.zero};
       alone.overwrite = true;
       return declared(p, st(std::move(alone)));
     }},
    {"turns are taken in order",
     [](auto& p) {
       Accumulate without{AtomicOp::add, whole(p.C), whole(p.s), nullptr};
       without.turn = Access{whole(p.C), {p.zero, p.zero}};
       return declared(p, st(std::move(without)));
     }},
    {"turns are counted in a workspace",
     [](auto& p) {
       return declared(p, st(Turn{Access{whole(p.s), {p.zero, p.zero}}, nullptr}));
     }},
    {"a loop has a start and an end for each index",
     [](auto& p) {
       return Body{st(For{LoopKind::serial, {p.i}, {p.zero}, {}, 0, {}})};
     }},
    {"a loop defines indices",
     [](auto& p) {
       return Body{st(For{LoopKind::serial, {p.v}, {p.zero}, {p.zero}, 0, {}})};
     }},
    {"ranges of loops are i32 or i64", [](auto& p) { return Body{st(loop(p, LoopKind::serial, p.one))}; }},
    {"the number of groups is constant",
     [](auto& p) { return Body{st(loop(p, LoopKind::warps, variable(p.N)))}; }},
    {"each_group does not stand in each_group",
     [](auto& p) {
       const Stmt inner = st(For{LoopKind::warps, {p.j}, {p.zero}, {int32(2)}, 0, {}});
       return Body{p.loop(LoopKind::warps, {inner})};
     }},
    {"there is a value to print",
     [](auto&) {
       return Body{st(Print{"", nullptr})};
     }},
};

TEST(VerifyRules, OfStatements) {
  for (const Case& c : statements) {
    const Material p;
    const std::string message = message_of(p.kernel(c.body(p)));
    // A missing operand is found before the rule of its statement is asked.
    const bool found = message.find(c.rule) != std::string::npos ||
                       message.find("no operand is missing") != std::string::npos;
    EXPECT_TRUE(found) << "wanted: " << c.rule << "\ngot: " << message;
  }
}

}  // namespace
}  // namespace tegula::ir

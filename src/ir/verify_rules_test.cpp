// Broken kernels for the rules that verify_test.cpp leaves, and a search for rules that neither breaks.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "ir/testing/kernels.hpp"

namespace tegula::ir {
namespace {

using namespace testing;

// ---- expressions
Expr f(double value) { return constant(f32, value); }
// As given, also where `make` would refuse it.
Expr op(Op o, DType type, std::vector<Expr> args) {
  ExprNode node{o, type, 1, Loc::current(), std::move(args), nullptr};
  return std::make_shared<const ExprNode>(std::move(node));
}
Expr wrong_constant() {
  ExprNode node = *int32(0);
  node.integer = std::int64_t{1} << 40;
  return std::make_shared<const ExprNode>(node);
}
Expr misnamed(const VariablePtr& v) {
  ExprNode node = *variable(v);
  node.type = f32;
  return std::make_shared<const ExprNode>(node);
}

const struct {
  const char* rule;
  Expr (*value)();
} expressions[] = {
    {"as many operands as it needs", [] { return op(Op::add, i32, {int32(1)}); }},
    {"no operand is missing",
     [] {
       return op(Op::add, i32, {int32(1), nullptr});
     }},
    {"values exist in f32, f64, i32, i64, u32 and bool",
     [] {
       return op(Op::add, f16, {f(1), f(2)});
     }},
    {"a constant fits its type", [] { return wrong_constant(); }},
    {"a variable has its own type", [] { return misnamed(named("v")); }},
    {"arithmetic is on numbers",
     [] {
       return op(Op::add, boolean, {truth(true), truth(true)});
     }},
    {"operations on bits are on integers",
     [] {
       return op(Op::bit_and, f32, {f(1), f(1)});
     }},
    {"mul_high is of u32",
     [] {
       return op(Op::mul_high, i32, {int32(1), int32(1)});
     }},
    {"order is between numbers",
     [] {
       return op(Op::lt, boolean, {truth(true), truth(true)});
     }},
    {"a comparison is a bool",
     [] {
       return op(Op::eq, i32, {int32(1), int32(1)});
     }},
    {"operands of logical operations are bools",
     [] {
       return op(Op::logical_and, boolean, {int32(1), int32(1)});
     }},
    {"isnan is of a float", [] { return op(Op::isnan, boolean, {int32(1)}); }},
    {"select decides by a bool",
     [] {
       return op(Op::select, i32, {int32(1), int32(1), int32(1)});
     }},
    {"the arms of select have the type",
     [] {
       return op(Op::select, i32, {truth(true), f(1), int32(1)});
     }},
    {"bitcast is between types of one width", [] { return op(Op::bitcast, i64, {f(1)}); }},
    {"elementary functions are of floats", [] { return op(Op::exp, i32, {int32(1)}); }},
};

TEST(VerifyRules, OfExpressions) {
  for (auto& c : expressions) {
    const Parts p;
    expect_broken(p.kernel({st(Print{"", c.value()})}), c.rule);
  }
}

// ---- statements

Body declared(const Parts& p, Stmt last) {
  return {p.declare(p.s), p.declare(p.f), p.declare(p.h), p.declare(p.row), std::move(last)};
}
For loop(const Parts& p, LoopKind kind, Expr end) { return {kind, {p.i}, {p.zero}, {std::move(end)}, 0, {}}; }

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
    {"a loop has a begin and an end for each index",
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
    const Parts p;
    const std::string message = message_of(p.kernel(c.body(p)));
    // A missing operand is found before the rule of its statement is asked.
    const bool found = message.find(c.rule) != std::string::npos ||
                       message.find("no operand is missing") != std::string::npos;
    EXPECT_TRUE(found) << "wanted: " << c.rule << "\ngot: " << message;
  }
}

// ---- signatures and grids

GridHints& heavy_first(Kernel& k) {
  GridHints& hints = k.grids[0].hints;
  hints.order = GridOrder::heavy_first, hints.cost = int32(1);
  return hints;
}

const struct {
  const char* rule;
  void (*spoil)(Kernel& kernel, const Parts& p);
} signatures[] = {
    {"a parameter is a dim or a scalar",
     [](auto& k, auto& p) {
       k.parameters.push_back({nullptr, p.v});
     }},
    {"a parameter is a tensor or a scalar",
     [](auto& k, auto&) {
       k.parameters.push_back({nullptr, nullptr});
     }},
    {"an extent of a tensor depends on dims and scalars",
     [](auto& k, auto& p) { k.workspaces.push_back(tensor("W", f32, {p.I}, Role::workspace)); }},
    {"extents are i32 or i64",
     [](auto& k, auto& p) { k.workspaces.push_back(tensor("W", f32, {p.one}, Role::workspace)); }},
    {"tensors are in global memory",
     [](auto& k, auto&) {
       Buffer strange = *tile("t", Space::shared, f32, {8});
       strange.role = Role::workspace;
       k.grids[0].body = {st(Declare{std::make_shared<const Buffer>(strange)})};
     }},
    {"only tensors that are written are cleared",
     [](auto& k, auto& p) {
       Buffer cleared = *p.A;
       cleared.zero = true;
       k.parameters.push_back({std::make_shared<const Buffer>(cleared), nullptr});
     }},
    {"extents of tiles are constant and positive",
     [](auto& k, auto& p) { k.grids[0].body = {p.declare(tile("t", Space::shared, f32, {0}))}; }},
    {"a grid has one to three indices", [](auto& k, auto&) { k.grids[0].index.clear(); }},
    {"a grid has an extent for each index", [](auto& k, auto&) { k.grids[0].extents.clear(); }},
    {"a grid defines indices of type i32", [](auto& k, auto& p) { k.grids[0].index = {p.v}; }},
    {"extents of a grid are i32 or i64", [](auto& k, auto& p) { k.grids[0].extents = {p.one}; }},
    {"grid options are in their ranges", [](auto& k, auto&) { k.grids[0].hints.cluster = 0; }},
    {"only heavy_first has blocks that begin together",
     [](auto& k, auto&) { k.grids[0].hints.together = int32(2); }},
    {"the number of blocks that begin together is i32 or i64",
     [](auto& k, auto& p) { heavy_first(k).together = p.one; }},
    {"a cost is a number", [](auto& k, auto& p) { heavy_first(k).cost = p.yes; }},
    {"a statement is missing", [](auto& k, auto&) { k.grids[0].body = {nullptr}; }},
};

TEST(VerifyRules, OfSignaturesAndGrids) {
  for (auto& c : signatures) {
    const Parts p;
    Kernel kernel = p.kernel({});
    c.spoil(kernel, p);
    expect_broken(kernel, c.rule);
  }
}

// ---- completeness

std::vector<std::string> literals_of(const std::string& file) {
  std::ifstream stream(std::string(TEGULA_SOURCE "/src/ir/") + file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const std::regex literal("\"([^\"\\n]+)\"");
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), literal); at != std::sregex_iterator(); ++at)
    found.push_back((*at)[1]);
  return found;
}

// Rules are sentences; what else stands between quotes in these files is shorter, or has braces.
bool is_rule(const std::string& text) {
  return std::count(text.begin(), text.end(), ' ') >= 2 && text.find('{') == std::string::npos &&
         text[0] != ' ' && text != "a statement that cannot be printed";
}

TEST(VerifyRules, NoneIsWithoutATest) {
  std::vector<std::string> tested = literals_of("verify_test.cpp");
  for (auto& text : literals_of("verify_rules_test.cpp")) tested.push_back(text);
  int rules = 0;
  for (auto* file : {"verify.cpp", "spec.cpp", "spec_expr.cpp"})
    for (auto& rule : literals_of(file)) {
      if (!is_rule(rule)) continue;
      ++rules;
      const bool found = std::any_of(tested.begin(), tested.end(), [&](auto& text) {
        return text.size() > 6 &&
               (rule.find(text) != std::string::npos || text.find(rule) != std::string::npos);
      });
      EXPECT_TRUE(found) << file << ": " << rule;
    }
  EXPECT_GT(rules, 80);
}

}  // namespace
}  // namespace tegula::ir

#include "ir/visit.hpp"

#include <gtest/gtest.h>

#include "ir/effects.hpp"
#include "ir/testing/nodes.hpp"

namespace tegula::ir {
namespace {

using namespace testing;

// serial(0, 4): { x = a[i]; if (x < 1) { t[i] = x + i } else { break_if(x == 2) } }
struct Sample {
  VariablePtr i = named("i"), x = named("x", VariableKind::let);
  BufferPtr a = tensor("a", i32, {int32(4)}), t = tile("t", Space::shared, i32, {4});
  Stmt load = st(Load{x, element(a, {variable(i)})});
  Stmt store = st(Store{element(t, {variable(i)}), variable(x) + variable(i)});
  Stmt leave = st(Break{eq(variable(x), int32(2))});
  Stmt branch = st(If{lt(variable(x), int32(1)), {store}, {leave}});
  Stmt loop = st(For{LoopKind::serial, {i}, {int32(0)}, {int32(4)}, 0, {load, branch}});
  Stmt declare = st(Declare{t});
  Body body{declare, loop};
};

TEST(Visit, WalksInProgramOrder) {
  const Sample s;
  Body met;
  for_each_stmt(s.body, [&](const Stmt& stmt) { met.push_back(stmt); });
  EXPECT_EQ(met, (Body{s.declare, s.loop, s.load, s.branch, s.store, s.leave}));
  int exprs = 0;
  for_each_expr(s.loop, [&](const Expr&) { ++exprs; });
  EXPECT_EQ(exprs, 2);
}

// A view with the extent k of a tensor of k / 1 elements would look like one of another shape.
TEST(Visit, MappedExpressionsLeaveTheShapeOfAWholeTensor) {
  const Expr k = variable(named("k"));
  const BufferPtr a = tensor("a", i32, {k / int32(1)});
  const Stmt load = st(Load{named("x", VariableKind::let), element(a, {int32(0)})});
  Mapping shorter;
  shorter.expr = [&](const Expr& e) { return equal(e, k / int32(1)) ? k : e; };
  const Stmt mapped = map(load, shorter);
  EXPECT_TRUE(equal(as<Load>(mapped)->from.view.shape[0], a->shape[0]));
}

TEST(Visit, NodesAreVisitedOnce) {
  Expr e = variable(named("x"));
  for (int i = 0; i < 100; ++i) e = e + e;
  int nodes = 0;
  for_each_node(e, [&](const Expr&) { ++nodes; });
  EXPECT_EQ(nodes, 101);
  int rewritten = 0;
  const Expr result = rewrite(e, [&](const Expr& node) { return ++rewritten, node; });
  EXPECT_EQ(result, e);
  EXPECT_LE(rewritten, 102);
}

TEST(Visit, RewritesShareWhatStays) {
  const Sample s;
  const Body same = map_exprs(s.body, [](const Expr& e) { return e; });
  EXPECT_EQ(same, s.body);
  const Body changed = substitute(s.body, {{s.a == nullptr ? s.x : named("unused"), int32(1)}});
  EXPECT_EQ(changed, s.body);

  const VariablePtr y = named("y", VariableKind::let);
  const Body renamed = substitute(s.body, {{s.x, variable(y)}});
  EXPECT_EQ(renamed[0], s.body[0]);
  ASSERT_NE(renamed[1], s.body[1]);
  const auto* loop = as<For>(renamed[1]);
  EXPECT_EQ(as<Load>(loop->body[0])->variable, y);
  EXPECT_TRUE(uses(as<If>(loop->body[1])->condition, y));
  EXPECT_FALSE(uses(as<Store>(as<If>(loop->body[1])->then[0])->value, s.x));
  EXPECT_THROW(substitute(s.body, {{s.x, int32(1)}}), InternalError);
}

TEST(Visit, BuffersAreRenamedEverywhere) {
  const Sample s;
  const BufferPtr other = tile("other", Space::shared, i32, {4});
  const Body renamed = rename_buffers(s.body, {{s.t, other}});
  EXPECT_EQ(as<Declare>(renamed[0])->tile, other);
  const Effects all = all_effects(renamed);
  EXPECT_TRUE(all.writes(other));
  EXPECT_FALSE(all.writes(s.t));
}

TEST(Visit, FreshCopiesShareNoDefinition) {
  const Sample s;
  const Body copy = fresh_copy(s.body);
  const Effects before = all_effects(s.body), after = all_effects(copy);
  ASSERT_EQ(before.defined.size(), after.defined.size());
  for (std::size_t k = 0; k < before.defined.size(); ++k) {
    EXPECT_NE(before.defined[k], after.defined[k]);
    EXPECT_EQ(before.defined[k]->name, after.defined[k]->name);
  }
  EXPECT_NE(before.declared[0], after.declared[0]);
  EXPECT_TRUE(after.reads(s.a));
  EXPECT_FALSE(after.writes(s.t));
}

TEST(Visit, StatementsAreReplacedInside) {
  const Sample s;
  const Body result = map_body(s.body, [](const Stmt& stmt) {
    if (as<Break>(stmt)) return Body{};
    if (as<Store>(stmt)) return Body{stmt, stmt};
    return Body{stmt};
  });
  const auto* branch = as<If>(as<For>(result[1])->body[1]);
  EXPECT_EQ(branch->then.size(), 2u);
  EXPECT_TRUE(branch->otherwise.empty());
}

TEST(Effects, OfStatementsAlone) {
  const Sample s;
  EXPECT_TRUE(effects(s.load).reads(s.a));
  EXPECT_TRUE(effects(s.store).writes(s.t));
  EXPECT_FALSE(effects(s.store).reads(s.t));
  EXPECT_TRUE(effects(s.leave).leaves);
  EXPECT_TRUE(effects(s.loop).regions.empty());
  EXPECT_EQ(effects(s.loop).defined, std::vector<VariablePtr>{s.i});
  EXPECT_TRUE(all_effects(s.loop).writes(s.t));
  EXPECT_TRUE(all_effects(s.loop).leaves);
}

TEST(Effects, WritesOfTensorsAreNotThoseOfTiles) {
  const Sample s;  // loads from a tensor, and stores to a tile
  EXPECT_FALSE(all_effects(s.body).writes_tensors());
  EXPECT_TRUE(effects(st(Store{element(s.a, {int32(0)}), int32(1)})).writes_tensors());
}

TEST(View, PlacesAreThoseOfElements) {
  const BufferPtr a = tile("a", Space::shared, i32, {4, 8}), b = tile("b", Space::shared, i32, {4, 8});
  const Expr i = variable(named("i")), j = variable(named("j"));
  Access shifted = element(a, {i, j});
  shifted.view.dims[0].offset = int32(1);
  EXPECT_TRUE(same_place(element(a, {i, j}), element(a, {i, j})));
  EXPECT_FALSE(same_place(element(a, {i, j}), element(a, {j, i})));
  EXPECT_FALSE(same_place(element(a, {i, j}), element(b, {i, j})));
  EXPECT_FALSE(same_place(element(a, {i, j}), shifted));
  EXPECT_TRUE(same_place(shifted, shifted));
}

TEST(Effects, OfTileOperations) {
  const BufferPtr a = tile("a", Space::shared, f32, {8, 8}), b = tile("b", Space::shared, f32, {8, 8}),
                  c = tile("c", Space::fragment, f32, {8, 8});
  const auto gemm = [&](bool overwrite) {
    return effects(st(Gemm{whole(a), whole(b), whole(c), overwrite, {}}));
  };
  EXPECT_TRUE(gemm(false).reads(c));
  EXPECT_FALSE(gemm(true).reads(c));
  EXPECT_TRUE(gemm(true).writes(c));
  EXPECT_TRUE(gemm(true).reads(a));
  const Effects fill = effects(st(Fill{whole(c), constant(f32, 0.0)}));
  const Effects copy = effects(st(Copy{whole(c), whole(a), nullptr}));
  EXPECT_TRUE(conflict(fill, copy));
  EXPECT_FALSE(conflict(fill, effects(st(Copy{whole(b), whole(a), nullptr}))));
  const Effects atomic =
      effects(st(Atomic{AtomicOp::add, element(a, {int32(0), int32(0)}), constant(f32, 1.0)}));
  EXPECT_EQ(atomic.regions[0].touch, Touch::combine);
}

TEST(Effects, MutableVariables) {
  const VariablePtr n = named("n", VariableKind::mutable_), x = named("x", VariableKind::let);
  const Effects first = effects(st(DeclareVar{n, int32(0)}));
  const Effects read = effects(st(Let{x, variable(n)}));
  const Effects assign = effects(st(Assign{n, variable(x) + 1}));
  EXPECT_EQ(first.assigned, std::vector<VariablePtr>{n});
  EXPECT_TRUE(conflict(read, assign));
  EXPECT_TRUE(conflict(first, assign));
  EXPECT_FALSE(conflict(read, read));
}

}  // namespace
}  // namespace tegula::ir

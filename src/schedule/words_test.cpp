// Every kind of statement has words.
#include "schedule/words.hpp"

#include <gtest/gtest.h>

#include <set>

#include "ir/testing/nodes.hpp"

namespace tegula::schedule {
namespace {

using namespace ir::testing;

struct Row {
  ir::Stmt stmt;
  const char* words;
};

std::vector<Row> rows() {
  using ir::testing::operator+;  // counts of schedules have their own
  const auto of = [](auto node) { return ir::statement(std::move(node), Loc::current()); };
  const auto i = named("i"), v = named("v", ir::VariableKind::let),
             x = named("x", ir::VariableKind::let, f32), n = named("n", ir::VariableKind::mutable_);
  const auto A = tensor("A", f32, extents({8, 8})), C = tensor("C", f32, extents({8, 8}), ir::Role::output);
  const auto s = tile("s", ir::Space::shared, f32, {8, 8}), f = tile("f", ir::Space::fragment, f32, {8, 8}),
             row = tile("row", ir::Space::fragment, f32, {8});
  const ir::Expr zero = ir::int32(0), one = ir::constant(f32, 1.0), X = ir::variable(x), I = ir::variable(i);
  const auto at = [&](const ir::BufferPtr& b) { return element(b, {zero, I}); };
  const auto each = [&](ir::Stmt stmt, ir::LoopKind kind = ir::LoopKind::parallel) {
    return of(ir::For{kind, {i}, {zero}, {ir::int32(8)}, 0, {std::move(stmt)}});
  };
  const ir::Expr exp2 = ir::make(ir::Op::exp2, f32, {X}, {}), less = lt(I, ir::int32(4));
  const ir::Stmt stored = of(ir::Store{at(f), exp2}), leaves = of(ir::Break{less});
  const ir::Expr sum = I + I + I + I + I + I + I + I + I + I + I + I;
  return {
      {of(ir::Let{v, I + 1}), "let v = i + 1"},
      {of(ir::Let{v, sum}), "let v = i + i + i + i + i + i + i + i + i + i …"},
      {of(ir::Load{x, at(A)}), "let x = element of A"},
      {of(ir::Store{at(C), X}), "store to C"},
      {of(ir::Declare{f}), "declare f f32[8, 8]"},
      {of(ir::DeclareVar{n, zero}), "declare n = 0"},
      {of(ir::Assign{n, I}), "set n = i"},
      {of(ir::Atomic{ir::AtomicOp::max, at(C), X}), "atomic max to C"},
      {of(ir::Copy{ir::whole(A), ir::whole(s), one}), "copy from A"},
      {of(ir::Copy{ir::whole(f), ir::whole(s), one}), "copy"},
      {of(ir::Copy{ir::whole(f), ir::whole(C), one}), "copy to C"},
      {of(ir::Gather{ir::whole(A), ir::whole(s), i, {}, I}), "gather from A"},
      {of(ir::Fill{ir::whole(f), zero}), "fill with 0"},
      {of(ir::Gemm{ir::whole(s), ir::whole(s), ir::whole(f), false, {}}), "gemm"},
      {of(ir::Reduce{ir::ReduceOp::absmax, ir::whole(f), 1, ir::whole(row)}), "reduce absmax"},
      {of(ir::Scan{ir::ReduceOp::sum, ir::whole(f), 1, ir::whole(s)}), "scan sum"},
      {of(ir::Accumulate{ir::AtomicOp::add, ir::whole(C), ir::whole(f), nullptr}), "add to C"},
      {of(ir::Turn{at(C), I}), "wait turn"},
      {of(ir::Turn{at(C), nullptr}), "pass turn"},
      {each(stored), "elementwise exp2"},
      {each(of(ir::If{less, {stored}, {}})), "elementwise exp2"},
      {each(of(ir::Store{at(f), X})), "copy"},
      {each(of(ir::Store{at(f), one})), "fill"},
      {each(of(ir::Store{at(C), X})), "store to C"},
      {each(of(ir::Atomic{ir::AtomicOp::add, at(C), X})), "atomic add to C"},
      {each(stored, ir::LoopKind::serial), "loop i"},
      {of(ir::If{less, {stored}, {}}), "if i < 4"},
      {of(ir::While{{}, less, {stored}}), "while i < 4"},
      {leaves, "leave the loop if i < 4"},
      {of(ir::Exit{less}), "leave the block if i < 4"},
      {of(ir::Print{"sum", X}), "print sum"},
      {of(ir::Assert{less, "few"}), "assert i < 4"},
  };
}

TEST(Words, OfEveryKindOfStatement) {
  std::set<std::size_t> kinds;
  for (const Row& row : rows()) {
    EXPECT_EQ(words_of(*row.stmt), row.words);
    kinds.insert(row.stmt->node.index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<ir::StmtNode::Variant>);
}

}  // namespace
}  // namespace tegula::schedule

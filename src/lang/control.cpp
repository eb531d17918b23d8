#include "tegula/lang/control.hpp"

#include "ir/rows.hpp"
#include "lang/builder.hpp"

namespace tegula::lang {

namespace {

ir::LoopKind kind_of(detail::Loop kind) {
  switch (kind) {
    case detail::Loop::serial:
      return ir::LoopKind::serial;
    case detail::Loop::unrolled:
      return ir::LoopKind::unrolled;
    case detail::Loop::pipelined:
      return ir::LoopKind::pipelined;
  }
  throw InternalError("unknown loop");
}

ir::Expr use_condition(const char* what, const Operand& condition) {
  if (!condition.type().is_boolean())
    fail(condition.at, std::string(what) + " needs a boolean condition, got " +
                           std::string(condition.type().name()) + "; write a comparison");
  return Builder::current(condition.at).use(condition, boolean, condition.at);
}

void check_loop(Builder& builder, detail::Loop kind, int stages, const Loc& at) {
  if (!builder.within(ScopeKind::grid)) fail(at, "a loop must stand inside grid(…)");
  if (kind == detail::Loop::pipelined) builder.need_block("pipelined", at);
  if (stages < 0)
    fail(at, "pipelined(): stages is " + std::to_string(stages) +
                 "; it must be positive, or 0 to leave it to the compiler");
}

}  // namespace

namespace detail {

void loop(Loop kind, const Range& range, int stages, const std::function<void(Index)>& body) {
  auto& at = range.end.at;
  auto& builder = Builder::current(at);
  auto begin = use_integer("the begin of a loop", range.begin),
       end = use_integer("the end of a loop", range.end);
  check_loop(builder, kind, stages, at);
  auto index = builder.define_index("i", at);
  ir::For node{kind_of(kind), {index}, {begin}, {end}, stages, {}};
  builder.inside(ScopeKind::loop, node.body, [&] { body(Index(ir::variable(index, at))); });
  builder.add(ir::statement(std::move(node), at));
}

void parallel(const std::vector<Operand>& extents, Loc at, const IndexBody& body) {
  auto& builder = Builder::current(at);
  if (builder.within(ScopeKind::parallel) || builder.within(ScopeKind::rows))
    fail(at, "parallel() inside parallel(); give one parallel() more extents");
  builder.need_block("parallel", at);
  ir::For node{ir::LoopKind::parallel, {}, {}, {}, 0, {}};
  std::vector<Index> indices;
  for (auto& extent : extents) {
    node.end.push_back(use_integer("an extent of parallel()", extent));
    node.begin.push_back(ir::int32(0, at));
  }
  for (std::size_t d = 0; d < extents.size(); ++d) {
    node.index.push_back(builder.define_index("p", at));
    indices.emplace_back(ir::variable(node.index.back(), at));
  }
  builder.inside(ScopeKind::parallel, node.body, [&] { body(indices); });
  builder.add(ir::statement(std::move(node), at));
}

std::vector<Operand> extents_of(const Tile& tile, int arity, Loc at) {
  if (arity != tile.rank())
    fail(at, "parallel() over a tile of rank " + std::to_string(tile.rank()) + " with a body of " +
                 counted(arity, "index", "indices") + "; the body takes one Index for each dimension, " +
                 counted(tile.rank(), "index", "indices") + " here");
  std::vector<Operand> extents;
  for (int d = 0; d < tile.rank(); ++d) extents.push_back(Operand(tile.extent(d), at));
  return extents;
}

void each_group(int count, Group group, Loc at, const std::function<void(Index)>& body) {
  auto& builder = Builder::current(at);
  builder.need_block("each_group", at);
  if (builder.within(ScopeKind::group)) fail(at, "each_group() inside each_group()");
  if (count < 1) fail(at, "each_group(): the count is " + std::to_string(count) + "; it must be positive");
  auto kind = group == Group::warp ? ir::LoopKind::warps : ir::LoopKind::warp_groups;
  auto index = builder.define_index("g", at);
  ir::For node{kind, {index}, {ir::int32(0, at)}, {ir::int32(count, at)}, 0, {}};
  builder.inside(ScopeKind::group, node.body, [&] { body(Index(ir::variable(index, at))); });
  builder.add(ir::statement(std::move(node), at));
}

When when(const Operand& condition, const std::function<void()>& body) {
  auto& at = condition.at;
  auto& builder = Builder::current(at);
  if (!builder.within(ScopeKind::grid))
    fail(at, "when() must stand inside grid(…); outside, conditions are C++ `if` or require()");
  ir::If node{use_condition("when()", condition), {}, {}};
  builder.inside(ScopeKind::branch, node.then, body);
  return When(builder.add_branch(std::move(node), at));
}

void when_rows(const std::vector<Expr>& conditions, const RowsOptions& options,
               const std::function<void()>& body, Loc at) {
  auto& builder = Builder::current(at);
  builder.need_block("when_rows", at);
  if (conditions.empty()) fail(at, "when_rows() needs a condition for each run of rows");
  ir::If node{};
  for (const Expr& condition : conditions) {
    node.of_rows.push_back(use_condition("when_rows()", Operand(condition, at)));
    const ir::Expr& own = node.of_rows.back();
    node.condition = node.condition ? ir::make(ir::Op::logical_or, boolean, {node.condition, own}, at) : own;
  }
  if (options.together)
    node.together = use_integer("`together` of when_rows()", Operand(*options.together, at));
  builder.inside(ScopeKind::branch, node.then, body);
  if (const auto mistake = ir::mistake_in_rows(node))
    fail(mistake->at, "this " + mistake->what + ", but stands in when_rows() (" + short_location(at) +
                          "), which changes rows of fragments only; use when(), or do it outside");
  builder.add(ir::statement(std::move(node), at));
}

void loop_while(const std::function<Expr()>& condition, const std::function<void()>& body, Loc at) {
  auto& builder = Builder::current(at);
  if (!builder.within(ScopeKind::grid)) fail(at, "a loop must stand inside grid(…)");
  ir::While node{{}, nullptr, {}};
  builder.inside(ScopeKind::test, node.test,
                 [&] { node.condition = use_condition("loop_while()", Operand(condition(), at)); });
  builder.inside(ScopeKind::loop, node.body, body);
  builder.add(ir::statement(std::move(node), at));
}

}  // namespace detail

void When::record(const std::function<void()>& body, Loc at) {
  auto& builder = Builder::current(at);
  ir::Body otherwise;
  builder.inside(ScopeKind::branch, otherwise, body);
  builder.set_otherwise(branch_, std::move(otherwise), at);
}

void break_if(const Operand& condition) {
  auto& builder = Builder::current(condition.at);
  auto node = use_condition("break_if()", condition);
  builder.need_loop(condition.at);
  builder.add(ir::statement(ir::Break{node}, condition.at));
}

void exit_if(const Operand& condition) {
  auto& builder = Builder::current(condition.at);
  auto node = use_condition("exit_if()", condition);
  builder.need_block("exit_if", condition.at);
  if (builder.within(ScopeKind::group))
    fail(condition.at, "exit_if() ends the whole block and cannot stand inside each_group(); use when()");
  builder.add(ir::statement(ir::Exit{node}, condition.at));
}

void print(const std::string& label, const Operand& value) {
  auto& builder = Builder::current(value.at);
  if (!builder.within(ScopeKind::grid)) fail(value.at, "print() must stand inside grid(…)");
  builder.add(
      ir::statement(ir::Print{label, builder.use(value, compute_type(value.type()), value.at)}, value.at));
}

void assert_that(const Operand& condition, const std::string& message) {
  auto& builder = Builder::current(condition.at);
  if (!builder.within(ScopeKind::grid))
    fail(condition.at,
         "assert_that() must stand inside grid(…); conditions on dims and scalars are require()");
  builder.add(ir::statement(ir::Assert{use_condition("assert_that()", condition), message}, condition.at));
}

}  // namespace tegula::lang

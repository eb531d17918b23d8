#include "tegula/lang/control.hpp"

#include "ir/effects.hpp"
#include "ir/rows.hpp"
#include "lang/builder.hpp"
#include "lang/scopes.hpp"

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
  if (!builder.within(ScopeKind::grid)) fail(at, "a loop must be inside grid(…)");
  if (kind == detail::Loop::pipelined) builder.need_block("pipelined", at);
  if (stages < 0)
    fail(at, "pipelined(): stages is " + std::to_string(stages) +
                 "; it must be positive, or 0 to leave it to the compiler");
}

}  // namespace

Scope::Scope(Builder& builder, std::vector<Index> indices, std::function<void()> finish)
    : builder_(&builder), indices_(std::move(indices)), finish_(std::move(finish)) {}
Scope::Scope(Scope&& other) noexcept
    : builder_(std::exchange(other.builder_, nullptr)),
      indices_(std::move(other.indices_)),
      finish_(std::move(other.finish_)) {}
Scope::~Scope() {
  if (builder_ && builder_ == Builder::active()) builder_->abandon();
}

void Scope::close() {
  internal_assert(builder_ != nullptr, "a scope is closed twice");
  std::exchange(builder_, nullptr)->close();
  finish_();
}

Scope open_loop(detail::Loop kind, const Range& range, int stages) {
  const Loc at = range.end.at;
  auto& builder = Builder::current(at);
  auto begin = use_integer("the start of a loop", range.begin),
       end = use_integer("the end of a loop", range.end);
  check_loop(builder, kind, stages, at);
  auto index = builder.define_index("i", at);
  auto node = std::make_shared<ir::For>(ir::For{kind_of(kind), {index}, {begin}, {end}, stages, {}});
  builder.open(ScopeKind::loop, node->body);
  return {builder, {Index(ir::variable(index, at))}, [&builder, node, at] {
            builder.add(ir::statement(std::move(*node), at));
          }};
}

Scope open_parallel(const std::vector<Operand>& extents, const Loc& at) {
  auto& builder = Builder::current(at);
  if (builder.within(ScopeKind::parallel) || builder.within(ScopeKind::rows))
    fail(at, "parallel() inside parallel(); give one parallel() more extents");
  builder.need_block("parallel", at);
  auto node = std::make_shared<ir::For>(ir::For{ir::LoopKind::parallel, {}, {}, {}, 0, {}});
  std::vector<Index> indices;
  for (auto& extent : extents) {
    node->end.push_back(use_integer("an extent of parallel()", extent));
    node->begin.push_back(ir::int32(0, at));
  }
  for (std::size_t d = 0; d < extents.size(); ++d) {
    node->index.push_back(builder.define_index("p", at));
    indices.emplace_back(ir::variable(node->index.back(), at));
  }
  builder.open(ScopeKind::parallel, node->body);
  return {builder, std::move(indices),
          [&builder, node, at] { builder.add(ir::statement(std::move(*node), at)); }};
}

Scope open_group(int count, Group group, const Loc& at) {
  auto& builder = Builder::current(at);
  builder.need_block("each_group", at);
  if (builder.within(ScopeKind::group))
    fail(at, "each_group() inside each_group(); give the outer one more groups");
  if (count < 1) fail(at, "each_group(): the count is " + std::to_string(count) + "; it must be positive");
  auto kind = group == Group::warp ? ir::LoopKind::warps : ir::LoopKind::warp_groups;
  auto index = builder.define_index("g", at);
  auto node =
      std::make_shared<ir::For>(ir::For{kind, {index}, {ir::int32(0, at)}, {ir::int32(count, at)}, 0, {}});
  builder.open(ScopeKind::group, node->body);
  return {builder, {Index(ir::variable(index, at))}, [&builder, node, at] {
            builder.add(ir::statement(std::move(*node), at));
          }};
}

Scope open_when(const Operand& condition, void** branch) {
  const Loc at = condition.at;
  auto& builder = Builder::current(at);
  if (!builder.within(ScopeKind::grid))
    fail(at, "when() must be inside grid(…); outside, conditions are C++ `if` or require()");
  auto node = std::make_shared<ir::If>(ir::If{use_condition("when()", condition), {}, {}});
  builder.open(ScopeKind::branch, node->then);
  return {builder, {}, [&builder, node, at, branch] {
            void* handle = builder.add_branch(std::move(*node), at);
            if (branch) *branch = handle;
          }};
}

Scope open_otherwise(void* branch, const Loc& at) {
  auto& builder = Builder::current(at);
  builder.check_branch(branch, at);
  auto otherwise = std::make_shared<ir::Body>();
  builder.open(ScopeKind::branch, *otherwise);
  return {builder, {}, [&builder, otherwise, branch, at] {
            builder.set_otherwise(branch, std::move(*otherwise), at);
          }};
}

Scope open_rows(const std::vector<Expr>& conditions, const RowsOptions& options, const Loc& at) {
  auto& builder = Builder::current(at);
  builder.need_block("when_rows", at);
  if (conditions.empty()) fail(at, "when_rows() needs a condition for each run of rows");
  auto node = std::make_shared<ir::If>();
  for (const Expr& condition : conditions) {
    node->of_rows.push_back(use_condition("when_rows()", Operand(condition, at)));
    const ir::Expr& own = node->of_rows.back();
    node->condition =
        node->condition ? ir::make(ir::Op::logical_or, boolean, {node->condition, own}, at) : own;
  }
  if (options.together)
    node->together = use_integer("`together` of when_rows()", Operand(*options.together, at));
  builder.open(ScopeKind::branch, node->then);
  return {builder, {}, [&builder, node, at] {
            if (const auto mistake = ir::mistake_in_rows(*node))
              fail(mistake->at,
                   "this " + mistake->what + ", but is inside when_rows() (" + short_location(at) +
                       "), which may change only rows of fragments; use when(), or move it outside");
            builder.add(ir::statement(std::move(*node), at));
          }};
}

// Whether the statements may write what a region shows. Tensors may share memory.
bool may_write(const ir::Effects& effects, const ir::Region& read) {
  return std::any_of(effects.regions.begin(), effects.regions.end(), [&](const ir::Region& other) {
    const ir::View &a = *read.view, &b = *other.view;
    return ir::is_write(other.touch) && (a.buffer == b.buffer || (!a.is_tile() && !b.is_tile()));
  });
}

// Whether the body may leave the loop, or change what the condition reads, as the condition itself may.
bool may_end(const ir::While& loop) {
  const ir::Effects test = ir::all_effects(loop.test), body = ir::all_effects(loop.body);
  const auto assigned = [&](const ir::VariablePtr& v) {
    return std::find(body.assigned.begin(), body.assigned.end(), v) != body.assigned.end() ||
           std::find(test.assigned.begin(), test.assigned.end(), v) != test.assigned.end();
  };
  bool result = body.leaves || std::any_of(test.used.begin(), test.used.end(), assigned);
  ir::for_each_variable(loop.condition, [&](const ir::VariablePtr& v) { result |= assigned(v); });
  for (const ir::Region& read : test.regions) result |= may_write(body, read) || may_write(test, read);
  return result;
}

Scope open_while(const std::function<Expr()>& condition, const Loc& at) {
  auto& builder = Builder::current(at);
  if (!builder.within(ScopeKind::grid)) fail(at, "a loop must be inside grid(…)");
  auto node = std::make_shared<ir::While>(ir::While{{}, nullptr, {}});
  builder.inside(ScopeKind::test, node->test,
                 [&] { node->condition = use_condition("loop_while()", Operand(condition(), at)); });
  builder.open(ScopeKind::loop, node->body);
  return {
      builder, {}, [&builder, node, at] {
        if (!may_end(*node))
          fail(at,
               "loop_while() never ends: its body changes nothing that the condition reads; assign a Var of "
               "the condition, or leave the loop by break_if()");
        builder.add(ir::statement(std::move(*node), at));
      }};
}

namespace detail {

void loop(Loop kind, const Range& range, int stages, FunctionRef<void(const Index&)> body) {
  Scope scope = open_loop(kind, range, stages);
  body(scope.indices().front());
  scope.close();
}

void parallel(std::span<const Operand> extents, Loc at, IndexBody body) {
  Scope scope = open_parallel({extents.begin(), extents.end()}, at);
  body(scope.indices());
  scope.close();
}

void parallel(std::initializer_list<Operand> extents, Loc at, IndexBody body) {
  parallel(std::span(extents.begin(), extents.size()), at, body);
}

void parallel(const Tile& tile, int rank, Loc at, IndexBody body) {
  parallel(extents_of(tile, rank, at), at, body);
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

void each_group(int count, Group group, Loc at, FunctionRef<void(const Index&)> body) {
  Scope scope = open_group(count, group, at);
  body(scope.indices().front());
  scope.close();
}

When when(const Operand& condition, FunctionRef<void()> body) {
  void* branch = nullptr;
  Scope scope = open_when(condition, &branch);
  body();
  scope.close();
  return When(branch);
}

void when_rows(const std::vector<Expr>& conditions, const RowsOptions& options, FunctionRef<void()> body,
               Loc at) {
  Scope scope = open_rows(conditions, options, at);
  body();
  scope.close();
}

void loop_while(FunctionRef<Expr()> condition, FunctionRef<void()> body, Loc at) {
  Scope scope = open_while(condition, at);
  body();
  scope.close();
}

}  // namespace detail

void When::record(detail::FunctionRef<void()> body, Loc at) {
  Scope scope = open_otherwise(branch_, at);
  body();
  scope.close();
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
    fail(condition.at, "exit_if() ends the whole block and cannot be inside each_group(); use when()");
  builder.add(ir::statement(ir::Exit{node}, condition.at));
}

void print(const std::string& label, const Operand& value) {
  auto& builder = Builder::current(value.at);
  if (!builder.within(ScopeKind::grid)) fail(value.at, "print() must be inside grid(…)");
  builder.add(
      ir::statement(ir::Print{label, builder.use(value, compute_type(value.type()), value.at)}, value.at));
}

void assert_that(const Operand& condition, const std::string& message) {
  auto& builder = Builder::current(condition.at);
  if (!builder.within(ScopeKind::grid))
    fail(condition.at, "assert_that() must be inside grid(…); conditions on dims and scalars are require()");
  builder.add(ir::statement(ir::Assert{use_condition("assert_that()", condition), message}, condition.at));
}

}  // namespace tegula::lang

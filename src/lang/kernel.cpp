#include "tegula/lang/kernel.hpp"

#include <algorithm>

#include "ir/print.hpp"
#include "lang/builder.hpp"
#include "lang/scopes.hpp"

namespace tegula::lang {

namespace {

ir::BufferPtr make_buffer(ir::Role role, const std::string& name, const Extents& shape, DType type, bool zero,
                          const Loc& at) {
  auto& builder = Builder::current(at);
  builder.define_name(name, at);
  ir::Buffer buffer{name, ir::Space::global, role, type, {}, zero, at};
  if (shape.size() > 8)
    fail(at, "`" + name + "` has rank " + std::to_string(shape.size()) + "; at most 8 is supported");
  for (auto& extent : shape) {
    auto node = use_integer("an extent", extent);
    internal_assert(is_host(node), "outside a grid there are only dims, scalars and constants");
    buffer.shape.push_back(node);
  }
  return std::make_shared<const ir::Buffer>(std::move(buffer));
}

Tensor parameter(ir::Role role, const std::string& name, const Extents& shape, DType type, bool zero,
                 const Loc& at) {
  auto buffer = make_buffer(role, name, shape, type, zero, at);
  Builder::current(at).kernel.parameters.push_back({buffer, nullptr});
  return Tensor(std::make_shared<const ir::View>(ir::whole(buffer)));
}

ir::GridOrder order_of(Order::Kind kind) {
  switch (kind) {
    case Order::Kind::automatic:
      return ir::GridOrder::automatic;
    case Order::Kind::row:
      return ir::GridOrder::row;
    case Order::Kind::column:
      return ir::GridOrder::column;
    case Order::Kind::grouped:
      return ir::GridOrder::grouped;
    case Order::Kind::heavy_first:
      return ir::GridOrder::heavy_first;
  }
  throw InternalError("unknown order");
}

void check_option(bool good, const char* option, const std::string& rule, const Loc& at) {
  if (!good) fail(at, std::string("grid option .") + option + ": " + rule);
}

ir::GridHints hints_of(const GridOptions& options, const Loc& at) {
  check_option(options.threads >= 0 && options.threads <= 1024 && options.threads % 32 == 0, "threads",
               "a multiple of 32 up to 1024, or 0 to leave it to the compiler", at);
  check_option(options.cluster == 1 || options.cluster == 2 || options.cluster == 4 || options.cluster == 8,
               "cluster", "1, 2, 4 or 8", at);
  check_option(options.blocks_per_processor >= 0, "blocks_per_processor", "at least 0", at);
  check_option(options.order.kind != Order::Kind::grouped || options.order.group >= 1, "order",
               "grouped(n) needs n >= 1", at);
  return {options.threads,
          options.persistent,
          order_of(options.order.kind),
          options.order.group,
          nullptr,
          nullptr,
          options.cluster,
          options.blocks_per_processor};
}

// A cost that only reads what is known when the blocks are put in order.
ir::Expr cost_of(Builder& builder, const Order& order, const std::vector<Index>& indices, const Loc& at) {
  ir::Body reads;
  ir::Expr cost;
  builder.inside(ScopeKind::test, reads,
                 [&] { cost = use_integer("the cost of heavy_first()", Operand(order.cost(indices), at)); });
  if (!reads.empty())
    fail(at,
         "the cost of heavy_first() is computed before the grid starts: it may use the grid's indices, dims "
         "and scalars only");
  return cost;
}

}  // namespace

void Builder::check_owner(const ir::BufferPtr& tensor, const Loc& at) const {
  const bool is_parameter = std::any_of(kernel.parameters.begin(), kernel.parameters.end(),
                                        [&](const ir::Parameter& p) { return p.tensor == tensor; });
  if (!is_parameter &&
      std::find(kernel.workspaces.begin(), kernel.workspaces.end(), tensor) == kernel.workspaces.end())
    fail(at, "`" + tensor->name + "` belongs to another kernel; declare it as a parameter of this one");
}

Scope open_grid(const std::vector<Operand>& extents, const GridOptions& options) {
  const Loc at = extents.front().at;
  auto& builder = Builder::current(at);
  if (builder.within(ScopeKind::grid))
    fail(at, "grid() inside grid(); grids of one kernel run one after the other");
  auto node = std::make_shared<ir::Grid>(ir::Grid{{}, {}, hints_of(options, at), {}, at});
  std::vector<Index> indices;
  const char* names[] = {"bx", "by", "bz"};
  for (std::size_t d = 0; d < extents.size(); ++d) {
    auto extent = use_integer("a grid extent", extents[d]);
    internal_assert(is_host(extent), "outside a grid there are only dims, scalars and constants");
    node->extents.push_back(extent);
  }
  if (options.order.together)
    node->hints.together =
        use_integer("the number of blocks of heavy_first() that start together", options.order.together());
  for (std::size_t d = 0; d < extents.size(); ++d) {
    node->index.push_back(builder.define_index(names[d], at));
    indices.emplace_back(ir::variable(node->index.back(), at));
  }
  builder.open(ScopeKind::grid, node->body);
  Scope scope(builder, indices, [&builder, node] { builder.kernel.grids.push_back(std::move(*node)); });
  if (options.order.kind == Order::Kind::heavy_first)
    node->hints.cost = cost_of(builder, options.order, indices, at);
  return scope;
}

const std::string& Kernel::name() const { return ir_->name; }
std::string Kernel::text() const { return ir::print(*ir_); }

namespace detail {

Kernel build(const std::string& name, FunctionRef<void()> body, Loc at) {
  Builder builder(name, at);
  body();
  return Kernel(builder.finish());
}

void require_now(bool condition, const std::string& message, Loc at) {
  if (!condition) fail(at, message);
}

void grid(std::initializer_list<Operand> extents, const GridOptions& options, IndexBody body) {
  Scope scope = open_grid(extents, options);
  body(scope.indices());
  scope.close();
}

}  // namespace detail

Tensor input(const std::string& name, const Extents& shape, DType type, Loc at) {
  return parameter(ir::Role::input, name, shape, type, false, at);
}
Tensor output(const std::string& name, const Extents& shape, DType type, OutputOptions options, Loc at) {
  return parameter(ir::Role::output, name, shape, type, options.zero, at);
}
Tensor inout(const std::string& name, const Extents& shape, DType type, Loc at) {
  return parameter(ir::Role::inout, name, shape, type, false, at);
}

Tensor workspace(const std::string& name, const Extents& shape, DType type, OutputOptions options, Loc at) {
  auto buffer = make_buffer(ir::Role::workspace, name, shape, type, options.zero, at);
  Builder::current(at).kernel.workspaces.push_back(buffer);
  return Tensor(std::make_shared<const ir::View>(ir::whole(buffer)));
}

Expr scalar(const std::string& name, DType type, Loc at) {
  auto& builder = Builder::current(at);
  builder.define_name(name, at);
  if (compute_type(type) != type)
    fail(at, "scalar `" + name + "` of type " + std::string(type.name()) +
                 "; scalars are f32, f64, i32, i64, u32 or boolean");
  auto variable = builder.define(ir::VariableKind::scalar, name, type, at);
  builder.kernel.parameters.push_back({nullptr, variable});
  return Expr(ir::variable(variable, at), false);
}

void may_alias(const Tensor& a, const Tensor& b, Loc at) {
  auto& builder = Builder::current(at);
  for (const ir::BufferPtr& tensor : {a.view()->buffer, b.view()->buffer}) {
    builder.check_owner(tensor, at);
    if (tensor->role == ir::Role::workspace)
      fail(at, "may_alias() is a promise about arguments of a call, and `" + tensor->name +
                   "` is a workspace, whose memory is its own; leave it out");
  }
  builder.kernel.may_alias.push_back({a.view()->buffer, b.view()->buffer});
}

void require(const Operand& condition, const std::string& message) {
  auto& builder = Builder::current(condition.at);
  if (!condition.type().is_boolean())
    fail(condition.at, "require() needs a boolean condition, got " + std::string(condition.type().name()));
  auto node = builder.use(condition, boolean, condition.at);
  if (!is_host(node))
    fail(condition.at,
         "require() is checked at the call and may use dims and scalars only; inside a grid use "
         "assert_that()");
  builder.kernel.requirements.push_back({node, message, condition.at});
}

Expr processors(Loc at) {
  auto& builder = Builder::current(at);
  return Expr(ir::variable(builder.processors(at), at), false);
}

}  // namespace tegula::lang

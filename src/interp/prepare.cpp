#include <unordered_map>
#include <unordered_set>

#include "interp/memory.hpp"
#include "interp/nodes.hpp"
#include "interp/operations.hpp"
#include "ir/effects.hpp"
#include "ir/rows.hpp"
#include "tegula/error.hpp"

namespace tegula::interp {
namespace {

using namespace ir;

class Preparer {
 public:
  explicit Preparer(std::shared_ptr<const Signature> signature) {
    program_.signature = std::move(signature);
    for (const VariablePtr& variable : program_.signature->variables()) define(variable);
    for (const BufferPtr& buffer : program_.signature->buffers()) add_buffer(buffer);
  }

  Program run() {
    const Kernel& kernel = program_.signature->kernel();
    for_each_stmt(kernel, [this](const Stmt& stmt) {
      if (const auto* declare = as<Declare>(stmt)) add_buffer(declare->tile);
    });
    for (const Grid& grid : kernel.grids) add_grid(grid);
    return std::move(program_);
  }

 private:
  // ---- names

  struct Place {
    Register at;
    std::uint32_t scope;
  };

  Register new_register(const Cell& first = {}) {
    program_.registers.push_back(first);
    return static_cast<Register>(program_.registers.size() - 1);
  }
  Register define(const VariablePtr& variable) {
    const auto [found, added] = variables_.try_emplace(variable.get(), Place{0, scope_});
    if (added) found->second.at = new_register();
    return found->second.at;
  }
  const Place& place_of(const VariablePtr& variable) const {
    const auto found = variables_.find(variable.get());
    if (found == variables_.end()) {
      throw ProgramError("the variable `" + variable->name + "` is used where it has no value", variable->at);
    }
    return found->second;
  }
  void add_buffer(const BufferPtr& buffer) {
    if (buffers_.try_emplace(buffer.get(), program_.buffers.size()).second) {
      program_.buffers.push_back({buffer});
    }
  }
  std::uint32_t buffer_of(const BufferPtr& buffer) const {
    const auto found = buffers_.find(buffer.get());
    if (found == buffers_.end()) {
      throw ProgramError("`" + buffer->name + "` is used, but not declared in this kernel", buffer->at);
    }
    return found->second;
  }

  // Runs `f` in a new scope and gives its number.
  template <class F>
  std::uint32_t in_scope(const F& f) {
    const std::uint32_t outer = scope_, inner = program_.scopes++;
    scope_ = inner;
    f();
    scope_ = outer;
    return inner;
  }

  // ---- expressions

  Register expr(const Expr& e, Code& code) {
    if (e->op == Op::variable) return place_of(e->variable).at;
    if (e->op == Op::constant) return new_register(cell_of(value_of(e)));
    if (const auto found = known_.find(e.get()); found != known_.end()) return found->second;
    Register args[3] = {0, 0, 0};
    for (std::size_t i = 0; i < e->args.size(); ++i) args[i] = expr(e->args[i], code);
    const Register result = new_register();
    code.push_back({operation_for(*e), result, args[0], args[1], args[2], e.get()});
    known_.emplace(e.get(), result);
    return result;
  }
  // Expressions of one statement: common subexpressions are computed once.
  template <class F>
  void statement_code(const F& f) {
    known_.clear();
    f();
    known_.clear();
  }
  Register only(const Expr& e, Code& code) {
    Register result = 0;
    statement_code([&] { result = expr(e, code); });
    return result;
  }
  // The same value in another compute type.
  Expr held_in(const Expr& e, DType type) {
    if (e->held() == compute_type(type)) return e;
    program_.made.push_back(make(Op::cast, compute_type(type), {e}, e->at));
    return program_.made.back();
  }

  // ---- views

  const PreparedView* view(const View& view, const Loc& at) {
    auto prepared = std::make_unique<PreparedView>();
    PreparedView& v = *prepared;
    v.id = static_cast<std::uint32_t>(program_.views.size());
    v.buffer = buffer_of(view.buffer);
    v.scope = 0;
    v.rank = view.rank();
    v.at = at;
    if (v.rank > 8 || view.dims.size() != view.shape.size()) {
      throw ProgramError("a view of `" + view.buffer->name + "` has more than 8 dimensions", at);
    }
    v.reshaped = view.shape.size() != view.buffer->shape.size();
    for (std::size_t d = 0; !v.reshaped && d < view.shape.size(); ++d) {
      v.reshaped = !ir::equal(view.shape[d], view.buffer->shape[d]);
    }
    statement_code([&] {
      for (std::size_t d = 0; v.reshaped && d < view.shape.size(); ++d) {
        v.shape.push_back(view_expr(view.shape[d], v));
      }
      for (const ViewDim& dim : view.dims) add_dim(dim, v);
    });
    if (view.is_tile()) {
      for (int axis = 0; axis < view.rank(); ++axis) v.extents.push_back(view.extent(axis));
    }
    program_.views.push_back(std::move(prepared));
    return program_.views.back().get();
  }
  void add_dim(const ViewDim& dim, PreparedView& v) {
    PreparedView::Dim prepared{
        view_expr(dim.offset, v), dim.low != nullptr, dim.high != nullptr, 0, 0, dim.axis};
    if (dim.low != nullptr) prepared.low = view_expr(dim.low, v);
    if (dim.high != nullptr) prepared.high = view_expr(dim.high, v);
    v.dims.push_back(prepared);
  }
  Register view_expr(const Expr& e, PreparedView& v) {
    for_each_variable(
        e, [&](const VariablePtr& variable) { v.scope = std::max(v.scope, place_of(variable).scope); });
    return expr(e, v.code);
  }
  // An access to an element; its index is computed by `code`.
  PreparedAccess access(const Access& access, Code& code, const Loc& at) {
    PreparedAccess result{view(access.view, at), {}};
    statement_code([&] {
      for (const Expr& index : access.index) result.index.push_back(expr(index, code));
    });
    return result;
  }

  // ---- statements

  Nodes body(const Body& body) {
    Nodes nodes;
    for (const Stmt& stmt : body) {
      std::unique_ptr<Node> node = std::visit(
          [&](const auto& n) -> std::unique_ptr<Node> { return make_node(n, stmt->at); }, stmt->node);
      node->set_site(first_site + static_cast<std::uint32_t>(program_.sites.size()));
      program_.sites.push_back(stmt->at);
      nodes.push_back(std::move(node));
    }
    return nodes;
  }

  std::unique_ptr<Node> make_node(const Let& n, const Loc& at) { return assignment(n.variable, n.value, at); }
  std::unique_ptr<Node> make_node(const DeclareVar& n, const Loc& at) {
    return assignment(n.variable, n.value, at);
  }
  std::unique_ptr<Node> make_node(const Assign& n, const Loc& at) {
    return assignment(n.variable, n.value, at);
  }
  std::unique_ptr<Node> assignment(const VariablePtr& variable, const Expr& value, const Loc& at) {
    auto node = std::make_unique<LetNode>(at);
    node->value = only(held_in(value, variable->type), node->code);
    node->variable = define(variable);
    return node;
  }
  std::unique_ptr<Node> make_node(const Load& n, const Loc& at) {
    auto node = std::make_unique<LoadNode>(at);
    node->from = access(n.from, node->code, at);
    node->variable = define(n.variable);
    return node;
  }
  std::unique_ptr<Node> make_node(const Store& n, const Loc& at) {
    auto node = std::make_unique<StoreNode>(at);
    node->to = access(n.to, node->code, at);
    node->value = only(held_in(n.value, n.to.view.buffer->type), node->code);
    return node;
  }
  std::unique_ptr<Node> make_node(const Atomic& n, const Loc& at) {
    auto node = std::make_unique<AtomicNode>(at);
    node->op = n.op;
    node->to = access(n.to, node->code, at);
    node->value = only(held_in(n.value, n.to.view.buffer->type), node->code);
    program_.buffers[node->to.view->buffer].combined = true;
    return node;
  }
  std::unique_ptr<Node> make_node(const Declare& n, const Loc& at) {
    auto node = std::make_unique<DeclareNode>(at);
    node->tile = buffer_of(n.tile);
    return node;
  }
  std::unique_ptr<Node> make_node(const Copy& n, const Loc& at) {
    auto node = std::make_unique<CopyNode>(at);
    node->from = view(n.from, at);
    node->to = view(n.to, at);
    node->extents = n.to.is_tile() ? node->to->extents : node->from->extents;
    node->from_type = n.from.buffer->type;
    node->to_type = n.to.buffer->type;
    const Expr zero = n.fill != nullptr ? n.fill : zero_of(node->from_type);
    node->fill = only(held_in(zero, node->from_type), node->code);
    return node;
  }
  Expr zero_of(DType type) {
    program_.made.push_back(constant(compute_type(type), 0));
    return program_.made.back();
  }
  std::unique_ptr<Node> make_node(const Gather& n, const Loc& at) {
    auto node = std::make_unique<GatherNode>(at);
    node->from = view(n.from, at);
    node->to = view(n.to, at);
    node->from_type = n.from.buffer->type;
    node->to_type = n.to.buffer->type;
    node->names = {n.index};
    node->scope = in_scope([&] {
      node->index = define(n.index);
      node->body = body(n.body);
      node->row = only(n.row, node->code);
    });
    return node;
  }
  std::unique_ptr<Node> make_node(const Fill& n, const Loc& at) {
    auto node = std::make_unique<FillNode>(at);
    node->to = view(n.to, at);
    node->value = only(held_in(n.value, n.to.buffer->type), node->code);
    return node;
  }
  std::unique_ptr<Node> make_node(const Gemm& n, const Loc& at) {
    auto node = std::make_unique<GemmNode>(at);
    node->a = view(n.a, at);
    node->b = view(n.b, at);
    node->c = view(n.c, at);
    node->metadata = n.metadata ? view(*n.metadata, at) : nullptr;
    node->overwrite = n.overwrite;
    node->precision = n.hints.precision;
    return node;
  }
  std::unique_ptr<Node> make_node(const Reduce& n, const Loc& at) {
    auto node = std::make_unique<ReduceNode>(at);
    node->op = n.op;
    node->from = view(n.from, at);
    node->to = view(n.to, at);
    node->dim = static_cast<std::size_t>(n.dim);
    node->overwrite = n.overwrite;
    node->from_type = n.from.buffer->type;
    node->to_type = n.to.buffer->type;
    return node;
  }
  std::unique_ptr<Node> make_node(const Scan& n, const Loc& at) {
    auto node = std::make_unique<ScanNode>(at);
    node->op = n.op;
    node->from = view(n.from, at);
    node->to = view(n.to, at);
    if (n.starts) node->starts = view(*n.starts, at);
    node->dim = static_cast<std::size_t>(n.dim);
    node->exclusive = n.exclusive;
    node->reverse = n.reverse;
    node->from_type = n.from.buffer->type;
    node->to_type = n.to.buffer->type;
    return node;
  }
  std::unique_ptr<Node> make_node(const Accumulate& n, const Loc& at) {
    auto node = std::make_unique<AccumulateNode>(at);
    node->op = n.op;
    node->to = view(n.to, at);
    node->tile = view(n.tile, at);
    node->ordered = n.order != nullptr;
    node->consecutive = n.turn.has_value();
    node->overwrites = n.overwrite;
    if (node->ordered) node->order = only(n.order, node->code);
    program_.buffers[node->to->buffer].combined = true;
    return node;
  }
  std::unique_ptr<Node> make_node(const Turn&, const Loc&) {
    throw InternalError("turns are in kernels for GPUs only");
  }
  std::unique_ptr<Node> make_node(const For& n, const Loc& at) {
    auto node = std::make_unique<ForNode>(at);
    if (n.index.size() > 3 || n.index.empty()) throw ProgramError("a loop has 1 to 3 indices", at);
    node->kind = n.kind;
    node->names = n.index;
    statement_code([&] {
      for (const Expr& e : n.begin) node->begin.push_back(expr(e, node->code));
      for (const Expr& e : n.end) node->end.push_back(expr(e, node->code));
    });
    if (n.kind >= LoopKind::parallel) note_unordered(all_effects(n.body), false);
    node->scope = in_scope([&] {
      for (const VariablePtr& index : n.index) node->index.push_back(define(index));
      node->body = body(n.body);
    });
    return node;
  }
  std::unique_ptr<Node> make_node(const If& n, const Loc& at) {
    auto node = std::make_unique<IfNode>(at);
    node->condition = only(n.condition, node->code);
    for (const Expr& e : n.of_rows) node->of_rows.push_back(only(e, node->code));
    if (!n.of_rows.empty())
      for (const BufferPtr& fragment : written_rows(n)) node->fragments.push_back(buffer_of(fragment));
    node->then = body(n.then);
    node->otherwise = body(n.otherwise);
    return node;
  }
  std::unique_ptr<Node> make_node(const While& n, const Loc& at) {
    auto node = std::make_unique<WhileNode>(at);
    node->scope = in_scope([&] {
      node->test = body(n.test);
      node->condition = only(n.condition, node->code);
      node->body = body(n.body);
    });
    return node;
  }
  std::unique_ptr<Node> make_node(const Break& n, const Loc& at) {
    return leave(n.condition, Flow::leave_loop, at);
  }
  std::unique_ptr<Node> make_node(const Exit& n, const Loc& at) {
    return leave(n.condition, Flow::end_block, at);
  }
  std::unique_ptr<Node> leave(const Expr& condition, Flow flow, const Loc& at) {
    auto node = std::make_unique<LeaveNode>(at);
    node->condition = only(condition, node->code);
    node->flow = flow;
    return node;
  }
  std::unique_ptr<Node> make_node(const Print& n, const Loc& at) {
    auto node = std::make_unique<PrintNode>(at);
    node->label = n.label;
    node->value = only(n.value, node->code);
    node->type = n.value->held();
    return node;
  }
  std::unique_ptr<Node> make_node(const Assert& n, const Loc& at) {
    auto node = std::make_unique<AssertNode>(at);
    node->condition = only(n.condition, node->code);
    node->message = n.message;
    return node;
  }

  // Buffers both read and written by iterations that are not ordered. Tiles belong to one block.
  void note_unordered(const Effects& effects, bool of_grid) {
    std::unordered_set<const Buffer*> read, written;
    for (const ir::Region& region : effects.regions) {
      const Buffer* buffer = region.view->buffer.get();
      if (of_grid && buffer->is_tile()) continue;
      if (region.touch == Touch::read || region.touch == Touch::update) read.insert(buffer);
      if (is_write(region.touch)) written.insert(buffer);
    }
    for (const Buffer* buffer : read)
      if (written.contains(buffer)) program_.buffers[buffers_.at(buffer)].unordered_reads = true;
  }

  void add_grid(const Grid& grid) {
    PreparedGrid prepared{&grid, {}, {}, {}, 0, {}};
    for (const Expr& extent : grid.extents) prepared.extents.emplace_back(extent, *program_.signature);
    note_unordered(all_effects(grid.body), true);
    for_each_stmt(grid.body, [&](const Stmt& stmt) {
      if (const auto* accumulate = as<Accumulate>(stmt)) {
        prepared.accumulated.push_back(buffer_of(accumulate->to.buffer));
      }
    });
    prepared.scope = in_scope([&] {
      for (const VariablePtr& index : grid.index) prepared.index.push_back(define(index));
      prepared.body = body(grid.body);
    });
    program_.grids.push_back(std::move(prepared));
  }

  Program program_;
  std::unordered_map<const Variable*, Place> variables_;
  std::unordered_map<const Buffer*, std::uint32_t> buffers_;
  std::unordered_map<const ExprNode*, Register> known_;
  std::uint32_t scope_ = 0;
};

}  // namespace

Program prepare(const std::shared_ptr<const Signature>& signature) { return Preparer(signature).run(); }

}  // namespace tegula::interp

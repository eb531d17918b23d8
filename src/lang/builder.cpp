#include "lang/builder.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "ir/visit.hpp"

namespace tegula::lang {

namespace {

thread_local Builder* active_builder = nullptr;

struct Call {
  const char* function;
  Loc at;
};
thread_local std::vector<Call> calls;
thread_local std::optional<Loc> last_place;  // of the user, in the kernel that is being built

// Not in a header of the language, nor of the C++ library, which is below include/c++ with every compiler.
bool is_users(std::string_view file) {
  const bool of_language = file.find("tegula/lang/") != file.npos && file.ends_with(".hpp");
  return !of_language && file.find("/c++/") == file.npos;
}

bool is_identifier(const std::string& name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return c < 128 && (std::isalnum(c) || c == '_'); });
}

bool needs(const ir::Access& element, const ir::VariablePtr& variable) {
  const auto by = [&](const ir::Expr& e) { return e && ir::uses(e, variable); };
  return std::any_of(element.index.begin(), element.index.end(), by) ||
         std::any_of(element.view.dims.begin(), element.view.dims.end(),
                     [&](const ir::ViewDim& dim) { return by(dim.offset) || by(dim.low) || by(dim.high); });
}

}  // namespace

Loc detail::user_place(const Loc& at) {
  thread_local const char* known = nullptr;  // file names are constants of the program
  if (at.file_name() != known && !is_users(at.file_name())) return last_place.value_or(at);
  known = at.file_name();
  if (active_builder) last_place = at;
  return at;
}

Loc latest_place(const Loc& otherwise) { return last_place.value_or(otherwise); }

Trace::Trace(const char* name, Loc at) { calls.push_back({name, at}); }
Trace::~Trace() { calls.pop_back(); }

void fail(const Loc& at, std::string message) {
  for (auto call = calls.rbegin(); call != calls.rend(); ++call)
    message += std::string("\n  in ") + call->function + ", called at " + call->at.file_name() + ":" +
               std::to_string(call->at.line());
  throw ProgramError(message, detail::user_place(at));
}

Builder& Builder::current(const Loc& at) {
  detail::user_place(at);
  if (!active_builder)
    fail(at, "no kernel is being built here; call this inside the body of kernel(name, body)");
  return *active_builder;
}
Builder* Builder::active() { return active_builder; }

Builder::Builder(std::string name, Loc at) {
  if (active_builder) fail(at, "kernel() inside kernel(); write a second grid() instead");
  if (!is_identifier(name))
    fail(at, "the kernel name `" + name + "` must be an identifier; use letters, digits and _");
  kernel.name = std::move(name);
  kernel.at = at;
  scopes_.push_back({0, ScopeKind::kernel, nullptr});
  active_builder = this;
  last_place = at;
}
Builder::~Builder() {
  active_builder = nullptr;
  last_place.reset();
}

std::shared_ptr<const ir::Kernel> Builder::finish() {
  if (kernel.grids.empty())
    fail(kernel.at, "kernel `" + kernel.name + "` has no grid(); it would do nothing");
  for (auto& dim : kernel.dims) {
    bool solvable =
        std::any_of(kernel.parameters.begin(), kernel.parameters.end(), [&](const ir::Parameter& p) {
          return p.tensor &&
                 std::any_of(p.tensor->shape.begin(), p.tensor->shape.end(), [&](const ir::Expr& extent) {
                   return extent->op == ir::Op::variable && extent->variable == dim.variable;
                 });
        });
    if (!solvable)
      fail(dim.variable->at,
           "no parameter has the Dim `" + dim.variable->name +
               "` as an extent, so a call cannot determine it; use it alone as an extent, or "
               "pass it as scalar()");
  }
  return std::make_shared<const ir::Kernel>(std::move(kernel));
}

void Builder::add(ir::Stmt stmt) {
  internal_assert(scopes_.back().body != nullptr, "statements outside a grid were refused earlier");
  record_deferred();
  scopes_.back().body->push_back(std::move(stmt));
}

void* Builder::add_branch(ir::If branch, const Loc& at) {
  add(ir::statement(std::move(branch), at));
  return const_cast<ir::StmtNode*>(scopes_.back().body->back().get());
}

void Builder::check_branch(const void* branch, const Loc& at) const {
  const ir::Body* body = scopes_.back().body;
  if (!body || body->empty() || body->back().get() != branch)
    fail(at, "otherwise() must follow its when() directly");
}

void Builder::set_otherwise(void* branch, ir::Body otherwise, const Loc& at) {
  check_branch(branch, at);
  auto& body = *scopes_.back().body;
  auto whole = std::get<ir::If>(body.back()->node);
  whole.otherwise = std::move(otherwise);
  body.back() = ir::statement(std::move(whole), body.back()->at);
}

ir::VariablePtr Builder::processors(const Loc& at) {
  if (!processors_) {
    processors_ = define(ir::VariableKind::processors, "processors", i32, at);
    variables_[processors_.get()] = scopes_.front().id;
  }
  return processors_;
}

void Builder::open(ScopeKind kind, ir::Body& body) {
  record_deferred();
  if (!next_scope_) next_scope_ = ++last_scope_;
  scopes_.push_back({std::exchange(next_scope_, 0), kind, &body});
}

void Builder::close() {
  record_deferred();
  scopes_.pop_back();
}

void Builder::abandon() {
  deferred_.clear();
  scopes_.pop_back();
}

void Builder::inside(ScopeKind kind, ir::Body& body, const std::function<void()>& record) {
  open(kind, body);
  struct Abandon {
    Builder* builder;
    ~Abandon() {
      if (builder) builder->abandon();
    }
  } abandon{this};
  record();
  abandon.builder = nullptr;
  close();
}

bool Builder::within(ScopeKind kind) const { return depth_of(kind) > 0; }

int Builder::depth_of(ScopeKind kind) const {
  return static_cast<int>(
      std::count_if(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.kind == kind; }));
}

void Builder::need_loop(const Loc& at) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (scope->kind == ScopeKind::loop) return;
    if (scope->kind == ScopeKind::parallel || scope->kind == ScopeKind::group ||
        scope->kind == ScopeKind::rows)
      break;
  }
  fail(at,
       "break_if() leaves a serial, pipelined or while loop, and none is open here; to end the block use "
       "exit_if()");
}

void Builder::need_block(const char* what, const Loc& at) const {
  if (within(ScopeKind::parallel) || within(ScopeKind::rows))
    fail(at,
         std::string(what) + " is a tile operation and cannot be inside parallel(); move it out of the loop");
  if (!within(ScopeKind::grid)) fail(at, std::string(what) + " must be inside grid(…)");
  if (within(ScopeKind::test))
    fail(at, std::string(what) +
                 " cannot be in the condition of loop_while(); compute it in the loop and keep it in a Var");
}

ir::VariablePtr Builder::define(ir::VariableKind kind, const std::string& prefix, DType type, const Loc& at) {
  record_deferred();
  bool host = ir::is_host(kind);
  auto name = host ? prefix : prefix + std::to_string(counters_[prefix]++);
  auto variable = std::make_shared<const ir::Variable>(ir::Variable{name, type, kind, at});
  variables_[variable.get()] = scopes_.back().id;
  return variable;
}

ir::VariablePtr Builder::define_index(const std::string& prefix, const Loc& at) {
  auto variable = define(ir::VariableKind::index, prefix, i32, at);
  if (!next_scope_) next_scope_ = ++last_scope_;
  variables_[variable.get()] = next_scope_;
  return variable;
}

Expr Builder::defer(DType type, ReadOf what, int statement, const Loc& at) {
  auto value = std::make_shared<ir::Variable>(ir::Variable{"", type, ir::VariableKind::let, at});
  variables_[value.get()] = scopes_.back().id;
  deferred_.push_back({value, std::move(what), statement});
  return Expr(ir::variable(value, at), false);
}

void Builder::forget(const Expr& deferred) {
  std::erase_if(deferred_, [&](const Deferred& read) { return read.value == deferred.node()->variable; });
}

void Builder::order_deferred(const Expr& first, const Expr& second) {
  // They are recorded from the last to the first.
  const auto begin = std::find_if(deferred_.begin(), deferred_.end(), [&](const Deferred& read) {
    return ir::uses(first.node(), read.value) || ir::uses(second.node(), read.value);
  });
  std::stable_partition(begin, deferred_.end(),
                        [&](const Deferred& read) { return !ir::uses(first.node(), read.value); });
}

// Those of one statement from the last to the first, as g++ evaluates the arguments of functions; but first
// those that a read's own indices need.
void Builder::record_deferred() {
  std::vector<Deferred> reads = std::exchange(deferred_, {});
  for (auto begin = reads.begin(); begin != reads.end();) {
    const auto end = std::find_if(begin, reads.end(),
                                  [&](const Deferred& read) { return read.statement != begin->statement; });
    for (auto read = end; read != begin;) record(*--read, reads);
    begin = end;
  }
}

void Builder::record(Deferred& read, std::vector<Deferred>& others) {
  if (!read.value->name.empty()) return;  // it has been needed before
  auto* element = std::get_if<ir::Access>(&read.what);
  if (element)
    for (Deferred& other : others)
      if (&other != &read && needs(*element, other.value)) record(other, others);
  read.value->name = "t" + std::to_string(counters_["t"]++);
  const Loc& at = read.value->at;
  if (element)
    add(ir::statement(ir::Load{read.value, *element}, at));
  else
    add(ir::statement(ir::Let{read.value, ir::variable(std::get<ir::VariablePtr>(read.what), at)}, at));
}

// A function may name a tile as one of its callers did: a name that is taken gets a number.
std::string Builder::name_of_tile(const std::string& wanted, ir::Space space, const Loc& at) {
  const auto is_free = [&](const std::string& name) {
    return std::find(names_.begin(), names_.end(), name) == names_.end() && tile_names_.insert(name).second;
  };
  const std::string prefix = space == ir::Space::shared ? "s" : "f";
  std::string name = wanted;
  if (wanted.empty()) {
    do name = prefix + std::to_string(counters_["tile " + prefix]++);
    while (!is_free(name));
    return name;
  }
  if (!is_identifier(wanted))
    fail(at, "the name `" + wanted + "` of a tile must be an identifier; use letters, digits and _");
  for (int number = 1; !is_free(name); ++number) name = wanted + std::to_string(number);
  return name;
}

ir::BufferPtr Builder::define_tile(const std::string& name, ir::Space space, const std::vector<int>& shape,
                                   DType type, const Loc& written) {
  const Loc at = detail::user_place(written);
  need_block(space == ir::Space::shared ? "Shared" : "Fragment", at);
  ir::Buffer tile;
  tile.space = space;
  tile.role = ir::Role::tile;
  tile.type = type;
  tile.at = at;
  std::int64_t elements = 1;
  for (int extent : shape) {
    if (extent <= 0) fail(at, "a tile extent is " + std::to_string(extent) + "; it must be positive");
    elements *= extent;
    if (elements > (std::int64_t{1} << 26))
      fail(at, "a tile of more than 2^26 elements; process the data in smaller tiles");
    tile.shape.push_back(ir::int32(extent, at));
  }
  tile.name = name_of_tile(name, space, at);
  auto buffer = std::make_shared<const ir::Buffer>(std::move(tile));
  tiles_[buffer.get()] = scopes_.back().id;
  add(ir::statement(ir::Declare{buffer}, at));
  return buffer;
}

void Builder::define_name(const std::string& name, const Loc& at) {
  if (within(ScopeKind::grid))
    fail(at, "declare the parameters of a kernel before its grid(): `" + name + "`");
  if (!is_identifier(name))
    fail(at, "the name `" + name + "` must be an identifier; use letters, digits and _");
  if (std::find(names_.begin(), names_.end(), name) != names_.end())
    fail(at, "the name `" + name + "` is used twice in the kernel `" + kernel.name +
                 "`; give each parameter its own");
  names_.push_back(name);
}

ir::Expr Builder::use(const Expr& value, DType type, const Loc& at) {
  if (value.is_literal()) return adopt_literal(value, type, at);
  check_scope(value.node(), at);
  return value.node();
}
ir::Expr Builder::use(const Expr& value, const Loc& at) { return use(value, value.type(), at); }

void Builder::check_scope(const ir::Expr& value, const Loc& at) const {
  if (value->op == ir::Op::variable) check_scope(value->variable, at);
  for (auto& arg : value->args) check_scope(arg, at);
}

void Builder::check_scope(const ir::VariablePtr& variable, const Loc& at) const {
  auto found = variables_.find(variable.get());
  if (found == variables_.end())
    fail(at, "`" + variable->name + "` belongs to another kernel; declare one in each kernel");
  if (is_open(found->second)) return;
  fail(
      at,
      "the value of " + short_location(variable->at) +
          " is used outside the loop or branch that computes it; keep it in a Var or a tile declared before");
}

void Builder::check_scope(const ir::View& view, const Loc& at) const {
  for (auto& dim : view.dims)
    for (auto& e : {dim.offset, dim.low, dim.high})
      if (e) check_scope(e, at);
  if (!view.is_tile()) return check_owner(view.buffer, at);
  auto found = tiles_.find(view.buffer.get());
  if (found == tiles_.end())
    fail(at, "this tile belongs to another kernel; declare one in the grid that uses it");
  if (!is_open(found->second))
    fail(at, "the tile of " + short_location(view.buffer->at) +
                 " is used outside the loop or branch that declares it; declare it before");
}

void Builder::check_writable(const ir::View& view, const char* what, const Loc& at) const {
  if (!view.buffer->is_writable())
    fail(at, view.buffer->name + " is an input; declare it with output() or inout() to write it");
  if (view.is_tile() && declared_outside_group(tiles_.at(view.buffer.get())))
    fail(at, std::string(what) +
                 " writes a tile that was declared outside each_group(): its instances run at the "
                 "same time, so they may only read it; declare the tile inside");
}

bool Builder::declared_outside_group(int scope) const {
  for (auto& open : scopes_)
    if (open.kind == ScopeKind::group) return scope < open.id;
  return false;
}

bool Builder::is_shared_by_iterations(int scope) const {
  return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& open) {
    bool concurrent =
        open.kind == ScopeKind::parallel || open.kind == ScopeKind::rows || open.kind == ScopeKind::group;
    return concurrent && scope < open.id;
  });
}

bool Builder::is_parallel_index(const ir::VariablePtr& variable) const {
  if (variable->kind != ir::VariableKind::index) return false;
  int scope = variables_.at(variable.get());
  return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& open) {
    return open.id == scope && (open.kind == ScopeKind::parallel || open.kind == ScopeKind::rows);
  });
}

int Builder::scope_of(const ir::VariablePtr& variable) const { return variables_.at(variable.get()); }

bool Builder::is_open(int scope) const {
  return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.id == scope; });
}

}  // namespace tegula::lang

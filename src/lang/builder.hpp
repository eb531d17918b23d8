// The kernel being built by this thread: its open scopes, and the statements recorded so far.
#pragma once
#include <functional>
#include <set>
#include <unordered_map>
#include <variant>

#include "ir/ir.hpp"
#include "lang/contributions.hpp"
#include "tegula/lang.hpp"

namespace tegula::lang {

// Throws a ProgramError at the user's line, followed by the open traces.
[[noreturn]] void fail(const Loc& at, std::string message);

// The user's place that was seen last in this kernel; for what has none of its own.
Loc latest_place(const Loc& otherwise);

// What a value is read from.
using ReadOf = std::variant<ir::Access, ir::VariablePtr>;

enum class ScopeKind : std::uint8_t { kernel, grid, loop, parallel, rows, group, branch, test };

class Builder {
 public:
  // Fails outside kernel().
  static Builder& current(const Loc& at);
  static Builder* active();

  Builder(std::string name, Loc at);
  ~Builder();
  Builder(const Builder&) = delete;
  std::shared_ptr<const ir::Kernel> finish();

  void add(ir::Stmt stmt);
  // A branch that may still get its other side. It is found again by the returned handle.
  void* add_branch(ir::If branch, const Loc& at);
  // Fails unless that branch is the last statement.
  void check_branch(const void* branch, const Loc& at) const;
  void set_otherwise(void* branch, ir::Body otherwise, const Loc& at);
  ir::VariablePtr processors(const Loc& at);
  // Until close(), what is recorded goes into `body`, as the contents of a new scope.
  void open(ScopeKind kind, ir::Body& body);
  void close();
  // Closes the innermost scope after an error: what was still to be recorded is dropped.
  void abandon();
  // Records what `record` says into `body`, as the contents of a new scope.
  void inside(ScopeKind kind, ir::Body& body, const std::function<void()>& record);
  bool within(ScopeKind kind) const;
  int depth_of(ScopeKind kind) const;
  // Fails unless a loop that break_if() can leave is open.
  void need_loop(const Loc& at) const;
  // A tile operation works on the whole block, so it stands in a grid and outside parallel().
  void need_block(const char* what, const Loc& at) const;

  // A new variable of the innermost scope, or of the one that `next_scope` opens.
  ir::VariablePtr define(ir::VariableKind kind, const std::string& prefix, DType type, const Loc& at);
  ir::VariablePtr define_index(const std::string& prefix, const Loc& at);
  // The value of a read that is recorded before the next statement or definition (see lang/deferred.hpp).
  Expr defer(DType type, ReadOf what, int statement, const Loc& at);
  // Leaves such a read out.
  void forget(const Expr& deferred);
  // Those of `first` are recorded before those of `second` alone.
  void order_deferred(const Expr& first, const Expr& second);
  void record_deferred();
  ir::BufferPtr define_tile(const std::string& name, ir::Space space, const std::vector<int>& shape,
                            DType type, const Loc& at);
  void define_name(const std::string& name, const Loc& at);

  // `value` as an IR expression; literals get `type`. Fails if it is used outside the scope that computes it.
  ir::Expr use(const Expr& value, DType type, const Loc& at);
  // The same with the value's own type.
  ir::Expr use(const Expr& value, const Loc& at);
  void check_scope(const ir::Expr& value, const Loc& at) const;
  void check_scope(const ir::View& view, const Loc& at) const;
  void check_owner(const ir::BufferPtr& tensor, const Loc& at) const;  // in kernel.cpp, beside parameters
  void check_scope(const ir::VariablePtr& variable, const Loc& at) const;
  // Inside each_group(), what is declared outside is read-only.
  void check_writable(const ir::View& view, const char* what, const Loc& at) const;
  bool declared_outside_group(int scope) const;
  // `scope` is outside a parallel() or each_group() that is open.
  bool is_shared_by_iterations(int scope) const;
  // The index of a parallel() or of the rows of a gather() that is open.
  bool is_parallel_index(const ir::VariablePtr& variable) const;
  int scope_of(const ir::VariablePtr& variable) const;

  ir::Kernel kernel;
  Contributions contributions;

 private:
  struct Scope {
    int id;
    ScopeKind kind;
    ir::Body* body;
  };
  bool is_open(int scope) const;
  struct Deferred {
    std::shared_ptr<ir::Variable> value;
    ReadOf what;
    int statement;
  };
  void record(Deferred& read, std::vector<Deferred>& others);
  std::string name_of_tile(const std::string& wanted, ir::Space space, const Loc& at);

  std::vector<Scope> scopes_;
  std::vector<Deferred> deferred_;
  int last_scope_ = 0;
  int next_scope_ = 0;  // the scope that indices defined now belong to
  std::unordered_map<const ir::Variable*, int> variables_;
  std::unordered_map<const ir::Buffer*, int> tiles_;
  std::unordered_map<std::string, int> counters_;
  std::set<std::string> tile_names_;
  std::vector<std::string> names_;
  ir::VariablePtr processors_;
};

// Known at the launch: constants, dims, scalars, processors.
bool is_host(const ir::Expr& e);

// The current builder, which may record an operation on these tiles here, or an error at `at`.
inline Builder& begin_op(const char* what, std::initializer_list<const ir::View*> views, const Loc& at) {
  auto& builder = Builder::current(at);
  builder.need_block(what, at);
  for (auto* view : views) builder.check_scope(*view, at);
  return builder;
}

// The type in which `a` and `b` are combined; fails if their kinds differ.
DType common_type(const char* op, const Operand& a, const Operand& b);
// Fails unless `value` may be stored where elements of `type` are.
void check_kind(const Expr& value, DType type, const std::string& place, const Loc& at);
// An integer extent, offset or index.
ir::Expr use_integer(const char* what, const Operand& value);

// `value` rounded or wrapped to a literal of `type`; fails if an integer type cannot hold it.
ir::Expr adopt_literal(const Expr& literal, DType type, const Loc& at);

ir::View slice_view(const ir::View& view, const std::vector<Subscript>& subscripts, const Loc& at);
ir::View shift_view(const ir::View& view, const std::vector<Operand>& offsets, const Loc& at);
std::string shape_text(const ir::View& view);
// `C`, or the place of a tile, which has no name.
std::string described(const ir::View& view);
// `1 index`, `2 indices`.
std::string counted(int number, const char* one, const char* several);

}  // namespace tegula::lang

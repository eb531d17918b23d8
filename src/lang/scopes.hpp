// Constructs with a body, for callers that record it between two calls rather than by a function: the open
// scope is an object, as in Python's `with`. The functions of tegula/lang/control.hpp are built from the same
// objects.
#pragma once
#include <functional>
#include <vector>

#include "tegula/lang.hpp"

namespace tegula::lang {

class Builder;

class Scope {
 public:
  // `finish` records the construct when its body is complete.
  Scope(Builder& builder, std::vector<Index> indices, std::function<void()> finish);
  Scope(Scope&& other) noexcept;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  // One that is still open, as after an error, ends without a trace.
  ~Scope();

  const std::vector<Index>& indices() const { return indices_; }
  void close();

 private:
  Builder* builder_;  // null when it is closed
  std::vector<Index> indices_;
  std::function<void()> finish_;
};

Scope open_grid(const std::vector<Operand>& extents, const GridOptions& options);
Scope open_loop(detail::Loop kind, const Range& range, int stages);
Scope open_parallel(const std::vector<Operand>& extents, const Loc& at);
Scope open_group(int count, Group group, const Loc& at);
Scope open_while(const std::function<Expr()>& condition, const Loc& at);
// `branch`, if given, becomes what open_otherwise() knows it by when the scope is closed.
Scope open_when(const Operand& condition, void** branch = nullptr);
Scope open_otherwise(void* branch, const Loc& at);
Scope open_rows(const std::vector<Expr>& conditions, const RowsOptions& options, const Loc& at);

}  // namespace tegula::lang

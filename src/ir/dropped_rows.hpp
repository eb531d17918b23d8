// Rows that the limits of a window cut off, and on which no result of the program depends.
#pragma once
#include <optional>
#include <unordered_map>

#include "ir/affine.hpp"
#include "ir/stmt.hpp"

namespace tegula::ir {

// What the variables of a block stand for: equal reads of tensors that the block does not write are one
// value, and a variable that is computed once is its expression. Each belongs to the body in whose runs it
// has one value.
class Values {
 public:
  explicit Values(const Body& block);

  Affine affine_of(const Expr& e) const;
  // Whether all that the sum names keeps its value as long as the tile, or the variable, exists.
  bool outlive(const Affine& a, const Buffer* tile) const;
  bool is_inside(const VariablePtr& inner, const VariablePtr& outer) const;

 private:
  struct Read {
    const Load* load;
    VariablePtr variable;
  };
  void body(const Body& statements, int scope);
  void define(const VariablePtr& v, int scope) { scopes_[v.get()] = scope; }
  void load(const Load& n, int scope);
  void let(const Let& n);
  Expr resolved(const Expr& e) const;
  bool same(const Access& a, const Access& b) const;
  int scope_of(const VariablePtr& v) const;
  int inner(int scope);
  bool contains(int outer, int inner) const;

  std::vector<int> parents_;  // of bodies
  std::unordered_map<const Variable*, int> scopes_;
  std::unordered_map<const Buffer*, int> declared_;
  std::unordered_map<VariablePtr, Expr> known_;
  std::vector<Read> reads_;
  std::vector<const Buffer*> written_;
};

// Whether results are the same whatever stands in the elements of the tile that the copy reads as zeros
// because a limit inside of the tensor cuts them off. That holds where what is computed of such a row or
// column stays in rows or columns of its own, and reaches tensors only where limits at the same place drop
// it: a product of other rows does not see it, a sum along it does.
bool drops_what_is_cut(const Body& block, const Values& values, const Copy& copy);
// The same of the tile's rows that are outside the tensor, along the dimension before its last one.
bool drops_rows_outside(const Body& block, const Values& values, const Copy& copy);

}  // namespace tegula::ir

// Divides the columns of a fragment, and what is done with them, among warp groups that run one program.
#pragma once
#include <optional>

#include "ir/kernel.hpp"

namespace tegula::passes {

// One of equal parts of an axis: its number, known when the program runs, and how many there are.
struct PartOfAxis {
  ir::Expr number;
  int count;
};
// The view of that part. The axis shows a whole dimension of a tile, which becomes two: which part, and where
// in it.
ir::View part_of(const ir::View& view, int axis, const PartOfAxis& part);

class OwnColumns {
 public:
  // `group` is the number of the warp group that runs the program.
  OwnColumns(ir::BufferPtr whole, ir::VariablePtr group, int groups);

  bool touches(const ir::Stmt& s) const;
  // What a group does of a statement that touches the fragment: a declaration, a product that adds to it, or
  // a loop over its elements. Nothing for any other statement.
  std::optional<ir::Stmt> divided(const ir::Stmt& s) const;

 private:
  std::optional<ir::Stmt> loop(const ir::For& n, const ir::Stmt& s) const;
  std::optional<std::size_t> column_axis(const ir::For& n) const;
  ir::Stmt with_own(const ir::Stmt& s, const ir::Expr& column) const;

  const ir::BufferPtr whole_;
  const ir::VariablePtr group_;
  const int groups_;
  const std::int64_t columns_;  // of a group
  const ir::BufferPtr own_;
};

}  // namespace tegula::passes

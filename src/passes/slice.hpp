// The part of a program that some of its statements need.
#pragma once
#include <functional>
#include <unordered_set>

#include "ir/stmt.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

struct SliceRules {
  std::function<bool(const ir::Stmt&)> wanted;
  // Memory that the statements of the slice may read although nothing in the slice writes it.
  std::function<bool(const ir::Buffer&)> given;
  // Tiles that it may read although what fills them is not part of it.
  std::function<bool(const ir::Buffer&)> told = [](const ir::Buffer&) { return false; };
  // Statements that nothing may need: a slice that does does not exist.
  std::function<bool(const ir::Stmt&)> refused;
  // Statements that are never part of it.
  std::function<bool(const ir::Stmt&)> left_out;
};

// Every wanted statement with the control around it, and all that computes their operands: variables, and the
// contents of tiles. Loops over elements and instances of each_group are taken as a whole. Nothing if that
// would need a refused statement, or memory that is neither given nor written in the slice: the reason names
// the statement.
Planned<ir::Body> slice(const ir::Body& body, const SliceRules& rules);

}  // namespace tegula::passes

// A kernel: its signature and its grids.
#pragma once
#include <utility>

#include "ir/stmt.hpp"

namespace tegula::ir {

enum class GridOrder : std::uint8_t { automatic, row, column, grouped, heavy_first };

// Hints; none changes a result.
struct GridHints {
  int threads = 0;  // of a block; 0: the compiler chooses
  bool persistent = false;
  GridOrder order = GridOrder::automatic;
  int group = 0;  // of `grouped`
  Expr cost;      // of `heavy_first`: reads dims, scalars and the grid's indices
  Expr together;  // of `heavy_first`: values of the other indices whose heavy blocks begin together; may be
                  // null
  int cluster = 1;
  int blocks_per_processor = 0;
  // Shared memory on a GPU in addition to tiles that are loaded ahead, as determined by the printer; -1: not
  // yet known.
  std::int64_t other_shared_bytes = -1;
};

struct Grid {
  std::vector<VariablePtr> index;
  std::vector<Expr> extents;
  GridHints hints;
  Body body;
  Loc at;
};

// An extent that the shapes of a call determine. Every value is a multiple of `multiple`.
struct Dim {
  VariablePtr variable;
  std::int64_t multiple = 1;
};

// A condition on dims and scalars, checked at every call.
struct Requirement {
  Expr condition;
  std::string message;
  Loc at;
};

// A parameter of the call: a tensor, or a scalar.
struct Parameter {
  BufferPtr tensor;
  VariablePtr scalar;
};

struct Kernel {
  std::string name;
  std::vector<Dim> dims;
  std::vector<Parameter> parameters;  // in the order of declaration, workspaces left out
  std::vector<BufferPtr> workspaces;
  std::vector<Requirement> requirements;
  std::vector<std::pair<BufferPtr, BufferPtr>> may_alias;
  std::vector<Grid> grids;
  Loc at;
};
using KernelPtr = std::shared_ptr<const Kernel>;

}  // namespace tegula::ir

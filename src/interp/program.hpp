// A kernel prepared for interpretation: names are resolved to positions, expressions are lists of
// instructions on registers, statements are nodes.
#pragma once
#include <memory>
#include <vector>

#include "interp/cell.hpp"
#include "ir/kernel.hpp"
#include "runtime/call/binding.hpp"

namespace tegula::interp {

class Machine;

using Register = std::uint32_t;

// dst = operation(a, b, c). `node` knows the operation, its types and the user's line.
struct Instruction {
  void (*run)(const Instruction& instruction, Machine& machine);
  Register dst, a, b, c;
  const ir::ExprNode* node;
};
using Code = std::vector<Instruction>;

// A view whose expressions are computed by `code` into registers. It is resolved once for each iteration of
// the innermost loop that defines one of its variables (`scope`).
struct PreparedView {
  struct Dim {
    Register offset;
    bool clipped_low, clipped_high;
    Register low, high;
    int axis;
  };
  std::uint32_t id;
  std::uint32_t buffer;
  std::uint32_t scope;
  bool reshaped;
  Code code;
  std::vector<Register> shape;  // if reshaped
  std::vector<Dim> dims;
  int rank;
  std::vector<std::int64_t> extents;  // of a tile
  Loc at;
};

struct PreparedAccess {
  const PreparedView* view;
  std::vector<Register> index;
};

enum class Flow : std::uint8_t { next, leave_loop, end_block };

class Node {
 public:
  explicit Node(const Loc& at) : at_(at) {}
  virtual ~Node() = default;
  virtual Flow run(Machine& machine) const = 0;
  const Loc& at() const { return at_; }
  std::uint32_t site() const { return site_; }
  void set_site(std::uint32_t site) { site_ = site; }

 private:
  Loc at_;
  std::uint32_t site_ = 0;
};
using Nodes = std::vector<std::unique_ptr<const Node>>;

// How a buffer is used, over the whole kernel.
struct BufferUse {
  ir::BufferPtr buffer;
  bool unordered_reads = false;  // read where another iteration, instance or block may write
  bool combined = false;         // by atomics or accumulate
};

struct PreparedGrid {
  const ir::Grid* grid;
  std::vector<Register> index;
  std::vector<HostExpr> extents;
  std::vector<std::uint32_t> accumulated;  // buffers that this grid accumulates into
  std::uint32_t scope;
  Nodes body;
};

struct Program {
  std::shared_ptr<const Signature> signature;
  std::vector<BufferUse> buffers;  // those of the signature, then the tiles
  std::vector<Cell> registers;     // first values: constants; host variables come first
  std::vector<std::unique_ptr<PreparedView>> views;
  std::vector<ir::Expr> made;  // expressions that instructions point to and the kernel does not have
  std::vector<Loc> sites;      // of statements that write, from first_site on
  std::uint32_t scopes = 1;
  std::vector<PreparedGrid> grids;
};

Program prepare(const std::shared_ptr<const Signature>& signature);

}  // namespace tegula::interp

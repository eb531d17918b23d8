// Statements of a block.
#pragma once
#include <optional>
#include <variant>

#include "ir/view.hpp"

namespace tegula::ir {

struct StmtNode;
using Stmt = std::shared_ptr<const StmtNode>;
using Body = std::vector<Stmt>;

// variable = value, once. The value is pure, or exactly a mutable variable.
struct Let {
  VariablePtr variable;
  Expr value;
};

// variable = element, read here.
struct Load {
  VariablePtr variable;
  Access from;
};

struct Store {
  Access to;
  Expr value;
};

// A fresh tile with undefined contents, until the end of the enclosing body.
struct Declare {
  BufferPtr tile;
};

// A mutable variable with its first value. Outside `parallel` there is one for the block.
struct DeclareVar {
  VariablePtr variable;
  Expr value;
};

struct Assign {
  VariablePtr variable;
  Expr value;
};

enum class AtomicOp : std::uint8_t { add, min, max, bit_or, bit_and };

// element = op(element, value), indivisibly.
struct Atomic {
  AtomicOp op;
  Access to;
  Expr value;
};

// `to` element by element from `from`, converted; ranks are equal. One side at least is a tile and gives the
// extents; two tiles have equal ones. Elements outside a tensor view read as `fill`, and are not written.
struct Copy {
  View from, to;
  Expr fill;
  // Results are the same whatever stands in the elements that limits inside of the tensor cut off.
  bool any_beyond_limits = false;
  // The same of rows of the tile that are outside the tensor.
  bool any_outside = false;
  // What is copied is the sum of a product whose transpose warp groups multiply on a GPU.
  bool turned_sum = false;
};

// to(i, …) = from(row(i), …): the first axis of the tile `to` is looked up. `body` computes `row` for
// `index`. A row outside the view reads as zeros.
struct Gather {
  View from, to;
  VariablePtr index;
  Body body;
  Expr row;
};

struct Fill {
  View to;
  Expr value;
};

enum class Accumulation : std::uint8_t { promoted, tensor_core };
enum class Warps : std::uint8_t { automatic, rows, columns, square };

// How f32 is multiplied: in full precision, with operands rounded to the 11 bits of tf32, or as three
// products of operands that are split into two tf32 numbers each.
enum class Precision : std::uint8_t { ieee, tf32, tf32x3 };

// Part of the meaning are `accumulation`, for 8-bit operands on tensor cores, and `precision`, for f32.
struct GemmHints {
  Accumulation accumulation = Accumulation::promoted;
  Warps warps = Warps::automatic;
  std::optional<bool> swap, from_registers;
  bool by_warp = false;  // each warp multiplies its rows alone; only the compiler asks for it
  Precision precision = Precision::ieee;
};

// c += a · b for tiles a [m, k], b [k, n], c [m, n]; with `overwrite`, c = a · b. With `metadata`, a u8
// tile [m, k / 8], a is sparse and holds two values of each four along k, [m, k / 2]: see expand_sparse.hpp.
struct Gemm {
  View a, b, c;
  bool overwrite = false;
  GemmHints hints;
  std::optional<View> metadata = {};

  // Along k, of which a sparse operand holds half.
  std::int64_t depth() const { return b.extent(0); }
};
// What the product reads: a, b and where the values of a belong.
std::vector<const View*> operands(const Gemm& gemm);

enum class ReduceOp : std::uint8_t { sum, max, min, absmax, any, all };

// `to`, which has the axes of `from` without `dim`, is combined with the elements along `dim`; with
// `overwrite` it starts from the identity of the operation.
struct Reduce {
  ReduceOp op;
  View from;
  int dim;
  View to;
  bool overwrite = false;
};

// to(…, i, …) = the combination of from(…, j, …) over j <= i along `dim`, from the identity of the operation;
// `exclusive` leaves out j = i, `reverse` runs from the last element down. `from` and `to` have one shape, as
// has `starts`, a tile of bools: an element where it is true leaves out all that come before it.
struct Scan {
  ReduceOp op;  // sum, max or min
  View from;
  int dim;
  View to;
  bool exclusive = false, reverse = false;
  std::optional<View> starts = {};
};

// tensor window = op(tensor window, tile), element by element; see "Atomics" in ir.hpp.
struct Accumulate {
  AtomicOp op;
  View to, tile;
  Expr order;  // null: any order
  // Where the orders of every element are 0, 1, 2, …: the first of turn_parts words of a cleared workspace in
  // which a GPU counts how many contributions the windows of warp groups have.
  std::optional<Access> turn = {};
  bool overwrite = false;  // with turns: the contribution of order 0 is stored, not combined
};
constexpr int turn_parts = 4;  // at most one for each warp group

// What surrounds an accumulation on a GPU: waits until the word has reached `order`, or, after the
// contribution, passes the turn on.
struct Turn {
  Access word;
  Expr order;  // null: passes
};

enum class LoopKind : std::uint8_t { serial, unrolled, pipelined, parallel, warp_groups, warps };

// Half-open ranges, empty if end <= begin. Only `parallel` has more than one index; its begins are 0.
// `warp_groups` and `warps` are the instances of each_group.
struct For {
  LoopKind kind;
  std::vector<VariablePtr> index;
  std::vector<Expr> begin, end;
  int stages = 0;  // of pipelined; 0: the compiler chooses
  Body body;
};

// With `of_rows`, `condition` says whether any of them holds, and as written there is no `otherwise`. The
// rows of every fragment that the body writes are divided into runs of equal length, one for each of_rows[i],
// and rows of run i change only if it holds: warps that own only other rows may skip the body. `together`, if
// there is one, is a number of warps: see rows_of_warps.hpp.
struct If {
  Expr condition;
  Body then, otherwise;
  std::vector<Expr> of_rows = {};
  Expr together = nullptr;
};

// Before each iteration `test` runs, then `condition` decides.
struct While {
  Body test;
  Expr condition;
  Body body;
};

// Leaves the innermost serial, unrolled, pipelined or while loop.
struct Break {
  Expr condition;
};

// Ends the block.
struct Exit {
  Expr condition;
};

struct Print {
  std::string label;
  Expr value;
};

struct Assert {
  Expr condition;
  std::string message;
};

struct StmtNode {
  using Variant =
      std::variant<Let, Load, Store, Declare, DeclareVar, Assign, Atomic, Copy, Gather, Fill, Gemm, Reduce,
                   Scan, Accumulate, Turn, For, If, While, Break, Exit, Print, Assert>;
  Loc at;
  Variant node;
};

template <class Node>
Stmt statement(Node node, const Loc& at) {
  return std::make_shared<const StmtNode>(StmtNode{at, std::move(node)});
}

template <class Node>
const Node* as(const Stmt& stmt) {
  return std::get_if<Node>(&stmt->node);
}

// For std::visit with one lambda a kind; a kind without one does not compile.
template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

std::string_view name_of(AtomicOp op);
std::string_view name_of(ReduceOp op);
std::string_view name_of(LoopKind kind);

}  // namespace tegula::ir

// The statements of a prepared kernel.
#pragma once
#include "interp/program.hpp"
#include "ir/stmt.hpp"

namespace tegula::interp {

struct LetNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  Code code;
  Register value, variable;
};

struct LoadNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  Code code;
  PreparedAccess from;
  Register variable;
};

struct StoreNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  Code code;
  PreparedAccess to;
  Register value;
};

struct AtomicNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  ir::AtomicOp op;
  Code code;
  PreparedAccess to;
  Register value;
};

struct DeclareNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  std::uint32_t tile;
};

struct CopyNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  const PreparedView *from, *to;
  std::vector<std::int64_t> extents;
  Code code;
  Register fill;
  DType from_type, to_type;
};

struct GatherNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  const PreparedView *from, *to;
  std::vector<ir::VariablePtr> names;
  Register index;
  std::uint32_t scope;
  Nodes body;
  Code code;
  Register row;
  DType from_type, to_type;
};

struct FillNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  const PreparedView* to;
  Code code;
  Register value;
};

struct GemmNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  const PreparedView *a, *b, *c;
  const PreparedView* metadata;  // null unless a is sparse
  bool overwrite;
  ir::Precision precision;
};

struct ReduceNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  ir::ReduceOp op;
  const PreparedView *from, *to;
  std::size_t dim;
  bool overwrite;
  DType from_type, to_type;
};

struct ScanNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  ir::ReduceOp op;
  const PreparedView *from, *to, *starts = nullptr;
  std::size_t dim;
  bool exclusive, reverse;
  DType from_type, to_type;
};

struct AccumulateNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  ir::AtomicOp op;
  const PreparedView *to, *tile;
  bool ordered;
  bool consecutive = false;  // the orders of every element are 0, 1, 2, …
  bool overwrites = false;   // that of order 0
  Code code;
  Register order;
};

struct ForNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  ir::LoopKind kind;
  std::vector<ir::VariablePtr> names;
  std::vector<Register> index, begin, end;
  Code code;
  std::uint32_t scope;
  Nodes body;

 private:
  Flow run_serial(Machine& m, std::int64_t first, std::int64_t last) const;
  Flow run_unordered(Machine& m, const std::int64_t* first, const std::int64_t* last) const;
};

struct IfNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  Code code;
  Register condition;
  Nodes then, otherwise;
  std::vector<Register> of_rows;         // see ir::If
  std::vector<std::uint32_t> fragments;  // that it writes, with such rows
};

struct WhileNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  std::uint32_t scope;
  Nodes test;
  Code code;
  Register condition;
  Nodes body;
};

struct LeaveNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  Code code;
  Register condition;
  Flow flow;
};

struct PrintNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  std::string label;
  Code code;
  Register value;
  DType type;
};

struct AssertNode : Node {
  using Node::Node;
  Flow run(Machine& m) const override;
  Code code;
  Register condition;
  std::string message;
};

}  // namespace tegula::interp

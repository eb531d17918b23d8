// Checks a call against a kernel's signature and gives every dim, scalar and tensor its value.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ir/arithmetic.hpp"
#include "ir/kernel.hpp"
#include "runtime/machine/workspace_pool.hpp"
#include "tegula/runtime.hpp"

namespace tegula {

// The values of a call. The positions are those of Signature::variables and Signature::buffers.
struct Binding {
  std::vector<ir::Value> values;
  std::vector<TensorRef> tensors;
  Device device;  // on which the tensors are
  std::size_t workspace_bytes = 0;
  std::shared_ptr<void> workspace;  // the memory of all workspaces, on the host
};

// Workspaces begin at multiples of this within their memory.
std::size_t workspace_alignment(DeviceKind device);
// The value as an 8-byte word of printed code: integers as 64 bits, f32 as its bits in the low half.
std::int64_t word_of(const ir::Value& value);

class Signature;

// An expression of dims, scalars and the number of processors, ready to be computed for many calls; also of
// `more` variables, whose values the caller puts after those of the binding.
class HostExpr {
 public:
  HostExpr() = default;
  HostExpr(const ir::Expr& e, const Signature& signature, std::span<const ir::VariablePtr> more = {});

  // `values` are those of a Binding. `overflow`, if given, becomes true when an integer result had to wrap.
  ir::Value operator()(std::span<const ir::Value> values, bool* overflow = nullptr) const;

 private:
  struct Step {
    ir::Op op;
    DType type;
    int position = -1;     // of a variable
    ir::Value value = {};  // of a constant
  };
  void add(const ir::Expr& e, const Signature& signature, std::span<const ir::VariablePtr> more);
  std::vector<Step> steps_;  // operands before operations
};

// What a call must satisfy, worked out once so that binding takes microseconds.
class Signature {
 public:
  // For calls with tensors on such a device. A ProgramError if no argument determines a dim.
  explicit Signature(ir::KernelPtr kernel, DeviceKind device = DeviceKind::cpu);

  const ir::Kernel& kernel() const { return *kernel_; }
  const ir::KernelPtr& kernel_pointer() const { return kernel_; }
  // The kernel's dims, then its scalars, then the variables that stand for the number of processors.
  const std::vector<ir::VariablePtr>& variables() const { return variables_; }
  // The tensors of the parameters, then the workspaces.
  const std::vector<ir::BufferPtr>& buffers() const { return buffers_; }
  std::size_t parameter_tensors() const { return parameter_tensors_; }
  // Positions in those; -1 if it is not there.
  int position_of(const ir::Variable* variable) const;
  int position_of(const ir::Buffer* buffer) const;

  // An ArgumentError if the call is wrong. Workspaces get memory if it is the host's.
  Binding bind(std::span<const Argument> args) const;
  Binding bind(std::span<const NamedArgument> args) const;
  // Without memory for the workspaces.
  Binding bind_only(std::span<const Argument> args) const;

 private:
  enum class ExtentKind : std::uint8_t { constant, solves, repeats, computed };
  struct Extent {
    ExtentKind kind = ExtentKind::constant;
    std::int64_t constant = 0;
    int position = -1;  // of the dim
    HostExpr computed;
  };
  // Where a dim gets its value: dimension `dim` of the tensor at position `tensor`.
  struct Source {
    int tensor = -1;
    int dim = -1;
  };
  struct Reshape {
    int tensor;
    std::vector<HostExpr> shape;
    Loc at;
  };
  struct Requirement {
    HostExpr condition;
    const ir::Requirement* text;
  };
  struct Pair {
    int a, b;
  };

  void collect_variables();
  void plan_extents();
  Extent plan_extent(const ir::Expr& extent, int tensor, int dim);
  void plan_reshapes();
  void plan_reshape(const ir::View& view, const Loc& at);
  void plan_pairs();

  TensorRef checked_tensor(const ir::Buffer& buffer, const Argument& arg) const;
  void check_device(const ir::Buffer& buffer, const TensorRef& tensor) const;
  void join_devices(Binding& binding) const;
  ir::Value checked_scalar(const ir::Variable& variable, const Argument& arg) const;
  void solve(Binding& binding) const;
  void solve_extent(Binding& binding, int tensor, int dim) const;
  void check_computed(const Binding& binding) const;
  void check_computed_extent(const Binding& binding, int tensor, int dim) const;
  void check_multiples(const Binding& binding) const;
  void check_requirements(const Binding& binding) const;
  void check_reshapes(const Binding& binding) const;
  void check_memory(const Binding& binding) const;
  void add_workspaces(Binding& binding) const;
  std::vector<std::string> parameter_names() const;
  std::string where(const ir::Buffer& buffer) const;
  std::string dims_text(const Binding& binding) const;

  ir::KernelPtr kernel_;
  DeviceKind device_;
  std::vector<ir::VariablePtr> variables_;
  std::vector<ir::BufferPtr> buffers_;
  std::vector<std::vector<Extent>> extents_;  // of each buffer
  std::vector<Source> sources_;               // of each dim
  std::vector<Reshape> reshapes_;
  std::vector<Requirement> requirements_;
  std::vector<Pair> pairs_;  // tensors that may not share bytes
  std::size_t parameter_tensors_ = 0;
  WorkspacePool workspaces_;
};

// Clears the outputs and workspaces that the kernel declares `zero`.
void clear_zeroed(const Signature& signature, const Binding& binding);

}  // namespace tegula

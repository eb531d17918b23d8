// A checked call: dims by name, dtypes, and tensors in the form of programs. Outputs are allocated, or
// provided by the caller.
#pragma once
#include <string_view>

#include "ops/schema/table.hpp"

namespace tegula::ops {

// Whether elements along a dim of an input are contiguous, as far as it has any.
inline bool has_unit_stride(const TensorRef& tensor, int dim) {
  return tensor.size(dim) <= 1 || tensor.stride(dim) == 1 || nelements(tensor) == 0;
}

class BoundCall {
 public:
  enum class Memory { used, unused };
  // A new output of the table's number.
  using Allocate = std::function<Tensor(std::size_t tensor, const Shape& shape, DType type, const Device&)>;

  // An ArgumentError if the call is wrong. `op` is the operator's struct and outlives this. Where memory is
  // unused, as when kernels are only listed, tensors may lack it and new outputs do. `allocate` makes new
  // outputs where their memory is not the library's.
  BoundCall(const OperatorSchema& schema, const void* op, Memory memory = Memory::used,
            const Allocate* allocate = nullptr);
  BoundCall(BoundCall&&) = default;
  BoundCall(const BoundCall&) = delete;

  const OperatorSchema& schema() const { return *schema_; }
  const void* op() const { return op_; }
  const Device& device() const { return device_; }
  Target target() const { return target_; }  // of a device, where the call says `automatic`
  // Whether plans are those of GPUs.
  bool on_gpu() const;
  // Whether all outputs, and inputs that are written, are empty, so that there is nothing to do.
  bool is_empty() const;

  // The value of a dim, derived value or option. An unknown name is an InternalError, as everywhere here.
  std::int64_t dim(std::string_view name) const { return values_[position(name)]; }
  const std::int64_t* values() const { return values_.data(); }

  bool has(std::string_view tensor) const { return at(index_of(tensor)) != nullptr; }
  // The tensor as given by the caller, or the output.
  const TensorRef& operator[](std::string_view tensor) const;
  // The same; no tensor where the call has none.
  TensorRef given(std::string_view tensor) const {
    const TensorRef* found = at(index_of(tensor));
    return found == nullptr ? TensorRef() : *found;
  }
  DType type(std::string_view tensor) const { return (*this)[tensor].dtype; }
  std::optional<DType> type_if(std::string_view tensor) const;
  // The value of a real option, or what it is otherwise.
  double real(std::string_view option) const;
  // With all dims of its table: missing ones have extent 1, those that repeat are repeated, leading ones are
  // one, (a*b) are two, in a program's order. A copy where no strides describe that; an output is refused
  // then.
  TensorRef formed(std::size_t tensor) const { return formed(tensor, *tensors_[tensor]); }
  // The same of another tensor of its shape.
  TensorRef formed(std::size_t tensor, const TensorRef& own) const;
  TensorRef formed(std::string_view tensor) const { return formed(index_of(tensor)); }
  Shape formed_shape(std::size_t tensor) const;
  // With its first `dims` dims as one; a copy, or a refusal, as above.
  TensorRef rows(std::string_view tensor, int dims) const;

  std::size_t index_of(std::string_view tensor) const;
  const TensorRef* at(std::size_t tensor) const { return tensors_[tensor]; }
  // Outputs by name, including inputs that are updated in place; and in the order of the table.
  Tensor output(std::string_view tensor) const;
  const Tensor& result(std::size_t output) const { return outputs_[output]; }
  Tensors outputs() const;

  // Bytes of all tensors of the call, and arithmetic by the table.
  double bytes() const;
  double flops() const;

 private:
  friend class Binder;
  double flops_of_formula() const;
  TensorRef folded(std::size_t tensor, const TensorRef& own, const Shape& shape) const;
  std::size_t position(std::string_view name) const;

  const OperatorSchema* schema_;
  const void* op_;
  Memory memory_;
  const Allocate* allocate_;  // as long as the constructor runs
  Device device_;
  Target target_ = Target::automatic();
  std::vector<std::int64_t> values_;       // by position
  std::vector<const TensorRef*> tensors_;  // as in the table; null if it is not given
  std::vector<const DimList*> lists_;      // the chosen dims of each
  std::vector<Tensor> outputs_;
  Shape leading_;                       // extents of `...`
  std::uint64_t met_ = 0;               // dims that some tensor has
  mutable std::vector<Tensor> copies_;  // that live as long as the call
};

// A call by names, checked; nothing runs, and new outputs have no memory.
struct CheckedCall {
  std::shared_ptr<void> op;
  BoundCall bound;

  CheckedCall(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
              Target target = Target::automatic(), BoundCall::Memory memory = BoundCall::Memory::unused);
};

// The same with the operator's struct.
template <class Op>
class Bound {
 public:
  explicit Bound(const BoundCall& call) : Bound(call, *static_cast<const Op*>(call.op())) {}
  // For a call of another operator whose struct contains this one's.
  Bound(const BoundCall& call, const Op& op) : call_(call), op_(op) {}
  const Op& operator*() const { return op_; }
  const Op* operator->() const { return &**this; }

  const BoundCall& call() const { return call_; }
  const Device& device() const { return call_.device(); }
  Target target() const { return call_.target(); }
  bool on_gpu() const { return call_.on_gpu(); }
  std::int64_t dim(std::string_view name) const { return call_.dim(name); }
  int small_dim(std::string_view name) const { return static_cast<int>(call_.dim(name)); }
  bool has(std::string_view tensor) const { return call_.has(tensor); }
  DType type(std::string_view tensor) const { return call_.type(tensor); }
  std::optional<DType> type_if(std::string_view tensor) const { return call_.type_if(tensor); }
  double real(std::string_view option) const { return call_.real(option); }
  const TensorRef& operator[](std::string_view tensor) const { return call_[tensor]; }
  TensorRef given(std::string_view tensor) const { return call_.given(tensor); }
  TensorRef formed(std::string_view tensor) const { return call_.formed(tensor); }
  TensorRef rows(std::string_view tensor, int dims) const { return call_.rows(tensor, dims); }

 private:
  const BoundCall& call_;
  const Op& op_;
};

}  // namespace tegula::ops

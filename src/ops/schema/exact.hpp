// What a formula reads and writes: copies of a call's tensors in double precision, by name, in the form of
// programs; integers stay integers.
#pragma once
#include <map>

#include "ops/schema/bound.hpp"

namespace tegula::ops {

class Exact {
 public:
  Exact(const BoundCall& call, DType steps) : call_(call), steps_(steps) {}

  // An input's copy, or an output of zeros to be written; contiguous.
  const Tensor& operator[](const std::string& tensor);
  // Its elements, f64.
  double* data(const std::string& tensor) { return (*this)[tensor].data_as<double>(); }
  double* data_if(const std::string& tensor) { return call_.has(tensor) ? data(tensor) : nullptr; }
  // An output in the shape of the call.
  void set(const std::string& output, const Tensor& result);
  // The value of a step as a computation in `steps` would have it.
  double rounded(double value) const { return steps_ == f64 ? value : round_to(steps_, value); }
  DType steps() const { return steps_; }
  // The outputs in the shapes of the call.
  Tensors outputs();

 private:
  const BoundCall& call_;
  DType steps_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace tegula::ops

#include "ops/schema/exact.hpp"

namespace tegula::ops {

const Tensor& Exact::operator[](const std::string& tensor) {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end()) return found->second;
  const std::size_t index = call_.index_of(tensor);
  const DType own = call_[tensor].dtype, type = own.is_floating() ? f64 : own;
  const bool is_output = index >= call_.schema().inputs;
  Tensor made = is_output ? Tensor::zeros(call_.formed_shape(index), type)
                          : Tensor::adopt(call_.formed(index), nullptr).to(type).contiguous();
  return tensors_.emplace(tensor, std::move(made)).first->second;
}

void Exact::set(const std::string& output, const Tensor& result) {
  copy_elements(call_.formed(call_.index_of(output), result.ref()), (*this)[output]);
}

Tensors Exact::outputs() {
  Tensors result;
  for (const auto& [name, tensor] : call_.outputs()) {
    const Tensor& made = (*this)[name];
    Tensor own = Tensor::empty(tensor.shape(), made.dtype());
    copy_elements(made, call_.formed(call_.index_of(name), own));
    result.emplace(name, std::move(own));
  }
  return result;
}

}  // namespace tegula::ops

// What only tensors of PyTorch need.
//
// New ones are made by its functions in C, without Python: those of the stable interface by
// which compiled models allocate (torch/csrc/inductor/aoti_torch/c/shim.h), and the one by which extensions
// give a tensor to Python. They are looked up in the libraries of the process, so PyTorch does not belong to
// a build.
#pragma once
#include <nanobind/nanobind.h>

#include "tegula/tensor.hpp"

namespace tegula::python {

// A contiguous tensor on the device, whose elements are not set; null where this PyTorch lacks the functions
// or does not make it.
nanobind::object new_torch_tensor(const Shape& shape, DType dtype, const Device& device);

// A copy of a tensor whose memory does not hold its elements, but their negatives (is_neg) or nothing (the
// zeros that automatic gradients leave out); null for all others. DLPack exports such as if it did.
nanobind::object stored_as_it_is(nanobind::handle tensor);

// TypeError if the object is a nested tensor.
void refuse_nested(const char* name, nanobind::handle object);

}  // namespace tegula::python

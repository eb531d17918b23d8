// NumPy's own description of an array, for what its DLPack refuses to export: numbers of ml_dtypes, read-only
// arrays before NumPy 2.1, and arrays of bool in older ones
// (https://numpy.org/doc/stable/reference/arrays.interface.html).
#pragma once
#include <nanobind/nanobind.h>

#include "tegula/tensor.hpp"

namespace tegula::python {

struct DescribedArray {
  TensorRef ref;
  bool read_only;
};

// The elements of an object with `__array_interface__`; TypeError for those that the library does not know.
// `name` is the argument's.
DescribedArray read_array_interface(const char* name, nanobind::handle object);

}  // namespace tegula::python

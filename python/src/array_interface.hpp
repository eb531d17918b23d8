// NumPy's own descriptions of an array: the buffer, which takes a fraction of DLPack's time, and, for what
// its DLPack refuses to export: numbers of ml_dtypes, read-only arrays before NumPy 2.1, and arrays of bool
// in older ones, `__array_interface__` (https://numpy.org/doc/stable/reference/arrays.interface.html).
#pragma once
#include <nanobind/nanobind.h>

#include <optional>

#include "tegula/tensor.hpp"

namespace tegula::python {

struct DescribedArray {
  TensorRef ref;
  bool read_only;
};

// The elements of an array with a buffer (https://docs.python.org/3/c-api/buffer.html); none for numbers that
// buffers do not have, or strides that are no multiple of theirs. They are there as long as the array is.
std::optional<DescribedArray> read_buffer(nanobind::handle array);

// The elements of an object with `__array_interface__`; TypeError for those that the library does not know.
// `name` is the argument's.
DescribedArray read_array_interface(const char* name, nanobind::handle object);

}  // namespace tegula::python

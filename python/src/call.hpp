// One call of an operator from Python: its arrays as tensors, by DLPack, and its results as Python objects.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "tegula/stream.hpp"
#include "tegula/tensor.hpp"

namespace tegula::python {

namespace nb = nanobind;

class Call {
 public:
  // The elements of anything with `__dlpack__`, which stay alive and in place as long as the call, if the
  // object does. TypeError for other objects.
  TensorRef input(const char* name, nb::handle object);
  std::optional<TensorRef> optional_input(const char* name, nb::handle object);
  // An array that the operator writes: the same, and refused if it is read-only. None for a new one.
  std::optional<TensorRef> output(const char* name, nb::handle object);

  // Other threads of Python go on while the operator runs. On a GPU it is queued on the stream that the
  // library of the first array uses at present.
  template <class F>
  auto run(const F& function) {
    const auto results = without_lock(function);
    if (stream_ && holds_foreign_) keep_arrays();
    return results;
  }

  // The object that was given for an output, or a new one that owns the tensor and has `__dlpack__`.
  nb::object result(const Tensor& tensor, nb::handle given) const;

 private:
  template <class F>
  auto without_lock(const F& function) const {
    const nb::gil_scoped_release released;
    std::optional<StreamScope> scope;
    if (stream_) scope.emplace(*stream_);
    return function();
  }
  struct Array {
    TensorRef ref;
    bool read_only = false;
  };
  Array import_array(const char* name, nb::handle object);
  Array exported_array(const char* name, nb::handle object);
  Array array_of_bytes(const char* name, nb::handle tensor, DType dtype);
  void keep_arrays();

  std::vector<nb::object> owners_;  // of elements that may be used after the call, or that a capsule exports
  std::optional<Stream> stream_;
  bool holds_foreign_ = false;  // an array on a GPU whose library does not say on which stream it works
};

// The class of the new objects that results are.
void define_array(nb::module_& module);

}  // namespace tegula::python

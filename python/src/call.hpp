// One call of an operator from Python: its arrays as tensors, by DLPack, and its results as Python objects.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>
#include <string_view>
#include <vector>

#include "lock.hpp"
#include "tegula/stream.hpp"
#include "tegula/tensor.hpp"

namespace tegula::python {

namespace nb = nanobind;

// An argument whose library and device results belong to.
struct Like {
  nb::handle array;
  const TensorRef& ref;
};

// What an operator writes: an array, or None where the operator is to make it.
struct Output {
  nb::object array = nb::none();
  std::optional<TensorRef> ref = {};
  nb::handle like = {};
};

class Call {
 public:
  // The elements of anything with `__dlpack__`, which stay alive and in place as long as the call, if the
  // object does. TypeError for other objects.
  TensorRef input(const char* name, nb::handle object);
  // The array that is given, refused if it is read-only, or a new one from the library of `like`. Without a
  // shape, as of arguments that are wrong, the operator is left to refuse them.
  Output output(const char* name, nb::handle given, const Like& like, const std::optional<Shape>& shape,
                DType dtype);

  // One of the library's own, for what no library of Python allocates.
  Tensor new_tensor(const Shape& shape, DType dtype, const Device& device) const;

  // Other threads of Python go on while the operator runs. On a GPU it is queued on the stream that the
  // library of the first array uses at present.
  template <class F>
  auto run(const F& function) {
    const auto results = without_lock(function);
    if (stream_ && holds_foreign_) keep_arrays();
    return results;
  }

  // The array of an output, or the tensor that the library has made for it as one of the library of `like`,
  // if there is one.
  nb::object result(const Tensor& tensor, const Output& output) const;

 private:
  template <class F>
  auto without_lock(const F& function) const {
    const WithoutLock released;
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
  void check_device(const char* name, const Device& device);  // all arrays are on one
  void keep_arrays();

  InModule in_module_;                 // for as long as the objects below live
  std::vector<nb::object> owners_;     // of elements that nobody else holds
  std::vector<nb::handle> on_device_;  // which the caller holds as long as the call
  std::string_view first_;             // the name of the first array
  Device device_;                      // its device
  std::optional<Stream> stream_;
  bool holds_foreign_ = false;  // an array on a GPU whose library does not say on which stream it works
};

// The class of the new objects that results are.
void define_array(nb::module_& module);

}  // namespace tegula::python

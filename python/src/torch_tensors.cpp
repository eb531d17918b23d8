#include "torch_tensors.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tegula::python {

namespace nb = nanobind;

namespace {

struct TensorOfC;  // at::Tensor

// A function that a library of the process has; null without either.
template <class F>
F find(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return handle == nullptr ? nullptr : reinterpret_cast<F>(dlsym(handle, name));
}

using Number = std::int32_t (*)();  // PyTorch's number for a dtype or a kind of device

struct Functions {
  static constexpr const char* library = "libtorch_cpu.so";

  int (*empty)(std::int64_t rank, const std::int64_t* shape, const std::int64_t* strides, std::int32_t dtype,
               std::int32_t device_kind, std::int32_t device_index, TensorOfC** result) = nullptr;
  int (*release)(TensorOfC* tensor) = nullptr;
  PyObject* (*wrap)(const TensorOfC& tensor) = nullptr;  // THPVariable_Wrap(const at::TensorBase&)
  Number float32 = nullptr, float16 = nullptr, bfloat16 = nullptr, int32 = nullptr;
  Number cpu = nullptr, cuda = nullptr;

  Functions() {
    empty = find<decltype(empty)>(library, "aoti_torch_empty_strided");
    release = find<decltype(release)>(library, "aoti_torch_delete_tensor_object");
    wrap = find<decltype(wrap)>("libtorch_python.so", "_Z16THPVariable_WrapRKN2at10TensorBaseE");
    float32 = find<Number>(library, "aoti_torch_dtype_float32");
    float16 = find<Number>(library, "aoti_torch_dtype_float16");
    bfloat16 = find<Number>(library, "aoti_torch_dtype_bfloat16");
    int32 = find<Number>(library, "aoti_torch_dtype_int32");
    cpu = find<Number>(library, "aoti_torch_device_type_cpu");
    cuda = find<Number>(library, "aoti_torch_device_type_cuda");
  }

  Number number_of(DType dtype) const {
    if (dtype == f32) return float32;
    if (dtype == f16) return float16;
    if (dtype == bf16) return bfloat16;
    return dtype == i32 ? int32 : nullptr;
  }
};

}  // namespace

nb::object new_torch_tensor(const Shape& shape, DType dtype, const Device& device) {
  static const Functions functions;
  const Number number = functions.number_of(dtype), kind = device.is_cpu() ? functions.cpu : functions.cuda;
  if (!functions.empty || !functions.release || !functions.wrap || !number || !kind) return {};
  const Shape strides = row_major_strides(shape);
  TensorOfC* tensor = nullptr;
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (functions.empty(rank, shape.data(), strides.data(), number(), kind(), device.index, &tensor) != 0)
    return {};
  nb::object object = nb::steal(functions.wrap(*tensor));
  functions.release(tensor);
  if (!object.is_valid()) throw nb::python_error();
  return object;
}

namespace {

// The result of a method without arguments, by its interned name.
nb::object call_method(nb::handle object, PyObject* name) {
  PyObject* self = object.ptr();
  nb::object result = nb::steal(PyObject_VectorcallMethod(name, &self, 1, nullptr));
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

}  // namespace

nb::object stored_as_it_is(nb::handle tensor) {
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  static PyObject* const is_zero = PyUnicode_InternFromString("_is_zerotensor");
  if (call_method(tensor, is_neg).is(Py_True)) return tensor.attr("resolve_neg")();
  if (call_method(tensor, is_zero).is(Py_True)) return tensor.attr("new_zeros")(tensor.attr("shape"));
  return {};
}

void refuse_nested(const char* name, nb::handle object) {
  if (!nb::getattr(object, "is_nested", nb::bool_(false)).is(Py_True)) return;
  throw nb::type_error(fmt::format("{}: nested tensors are not supported; pass packed sequences, values() "
                                   "with offsets().int() as cu_seqlens",
                                   name)
                           .c_str());
}

}  // namespace tegula::python

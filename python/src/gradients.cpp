// What tensors of PyTorch say about gradients.
#include "exchange.hpp"
#include "operators.hpp"

namespace tegula::python {

namespace nb = nanobind;

namespace {

bool has_property(nb::handle tensor, PyObject* name) {
  const nb::object result = nb::steal(PyObject_GetAttr(tensor.ptr(), name));
  if (!result.is_valid()) throw nb::python_error();
  return result.is(Py_True);
}

bool requires_grad(nb::handle tensor) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  return has_property(tensor, name);
}

// A tensor without elements, of which the first of a call tells.
bool is_meta(nb::handle tensor) {
  static PyObject* const name = PyUnicode_InternFromString("is_meta");
  return has_property(tensor, name);
}

// Whether one requires a gradient; None if PyTorch has to see the call: one is no plain tensor, or the first
// has no elements.
nb::object any_requires_grad(const nb::tuple& tensors) {
  bool result = false;
  for (nb::handle tensor : tensors) {
    if (tensor.is_none()) continue;
    if (!class_of(tensor).plain_tensor) return nb::none();
    result = result || requires_grad(tensor);
  }
  return tensors.size() > 0 && is_meta(tensors[0]) ? nb::none() : nb::object(nb::bool_(result));
}

void refuse_gradients(const nb::args& arrays) {
  for (nb::handle array : arrays) {
    if (!array.is_none() && class_of(array).tensor_of_torch && requires_grad(array))
      throw nb::type_error(
          "this function gives no gradients, and an argument requires them; call the function of the same "
          "name in tegula.torch, or pass tensor.detach()");
  }
}

}  // namespace

void define_gradients(nb::module_& module) {
  module.def(
      "any_requires_grad", any_requires_grad, nb::arg("tensors"),
      nb::sig("def any_requires_grad(tensors: tuple) -> bool | None"),
      "Whether one of the tensors requires a gradient; None if one is not a plain tensor of PyTorch, or "
      "the first has no elements (is_meta).");
  module.def("refuse_gradients", refuse_gradients,
             "Refuses tensors whose gradients would be lost without a word.");
}

}  // namespace tegula::python

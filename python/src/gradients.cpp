// What tensors of PyTorch say about gradients, and calls that PyTorch has to record.
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

bool is_tensor(nb::handle array) { return !array.is_none() && class_of(array).tensor_of_torch; }

[[noreturn]] void raise_not_implemented(const char* text) {
  PyErr_SetString(PyExc_NotImplementedError, text);
  throw nb::python_error();
}

// Inside of a level of PyTorch's derivatives in forward mode.
bool computes_forward() {
  static PyObject* const forward =
      nb::object(nb::module_::import_("torch.autograd.forward_ad")).release().ptr();
  static PyObject* const level = PyUnicode_InternFromString("_current_level");
  return nb::cast<int>(nb::steal(PyObject_GetAttr(forward, level))) >= 0;
}

void refuse_tangents(nb::handle tensors) {
  const nb::object unpack = nb::module_::import_("torch.autograd.forward_ad").attr("unpack_dual");
  for (nb::handle tensor : tensors)
    if (is_tensor(tensor) && !nb::object(unpack(tensor).attr("tangent")).is_none())
      raise_not_implemented(
          "forward-mode derivatives (make_dual, torch.func.jvp) are not implemented; use reverse mode, or "
          "pass the tensor without its tangent");
}

void refuse_tracing(nb::handle array) {
  if (!is_tensor(array)) return;
  static PyObject* const is_tracing =
      nb::object(nb::module_::import_("torch._C").attr("_is_tracing")).release().ptr();
  if (nb::handle(is_tracing)().is(Py_True))
    raise_not_implemented(
        "torch.jit.trace does not see this function, so its results would be constants in the graph; call "
        "the function of the same name in tegula.torch");
}

void refuse_recording(const nb::args& arrays) {
  nb::handle tensor;  // the last
  for (nb::handle array : arrays) {
    if (!is_tensor(array)) continue;
    tensor = array;
    if (requires_grad(array))
      throw nb::type_error(
          "this function has no gradients, but an argument requires them; call the function of the same name "
          "in tegula.torch, or pass tensor.detach()");
  }
  if (!tensor.is_valid()) return;
  if (computes_forward()) refuse_tangents(arrays);
  refuse_tracing(tensor);
}

}  // namespace

void define_gradients(nb::module_& module) {
  module.def(
      "any_requires_grad", any_requires_grad, nb::arg("tensors"),
      nb::sig("def any_requires_grad(tensors: tuple) -> bool | None"),
      "Whether one of the tensors requires a gradient; None if one is not a plain tensor of PyTorch, or "
      "the first has no elements (is_meta).");
  module.def("refuse_tangents", refuse_tangents, nb::arg("tensors"),
             nb::sig("def refuse_tangents(tensors: tuple) -> None"),
             "Refuses tensors of PyTorch with a forward-mode derivative.");
  module.def("refuse_tracing", refuse_tracing, nb::arg("array").none(),
             nb::sig("def refuse_tracing(array: object | None) -> None"),
             "Refuses a tensor of PyTorch while torch.jit.trace is on.");
  module.def("refuse_recording", refuse_recording,
             "Refuses tensors whose derivatives, or place in a traced graph, would be lost silently.");
}

}  // namespace tegula::python

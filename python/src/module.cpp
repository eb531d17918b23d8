#include <nanobind/nanobind.h>

#include "call.hpp"
#include "operators.hpp"
#include "tegula/error.hpp"

namespace {

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const tegula::ArgumentError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const tegula::Error& error) { PyErr_SetString(PyExc_RuntimeError, error.what()); }
}

}  // namespace

NB_MODULE(_tegula, module) {
  module.doc() = "The operators of Tegula over DLPack; the package `tegula` is what to use.";
  // Arrays that another library has taken over may live until the interpreter has ended.
  nanobind::set_leak_warnings(false);
  nanobind::register_exception_translator(translate);
  tegula::python::define_array(module);
  tegula::python::define_forward(module);
  tegula::python::define_backward(module);
}

// Element types as objects of Python.
#include <fmt/format.h>

#include <string>

#include "dtypes.hpp"
#include "lang.hpp"

namespace tegula::python::language {

using lang::Expr;

DType dtype_of_object(nb::handle given) {
  if (nb::isinstance<DType>(given)) return nb::cast<DType>(given);
  std::string name =
      nb::str(PyType_Check(given.ptr()) ? nb::object(given.attr("__name__")) : nb::borrow(given)).c_str();
  name = name.substr(name.rfind('.') + 1);
  for (const DType dtype : all_dtypes)
    if (name == python_name(dtype) || name == dtype.name()) return dtype;
  throw nb::type_error(
      fmt::format("expected an element type, such as f32, given {}", nb::repr(given).c_str()).c_str());
}

void define_dtypes(nb::module_& module) {
  nb::class_<DType>(module, "DType", "An element type; called as a function, it casts to it.")
      .def_prop_ro("name", [](const DType& self) { return std::string(self.name()).c_str(); })
      .def_prop_ro("python_name", [](const DType& self) { return python_name(self); })
      .def_prop_ro("bits", [](const DType& self) { return self.bits(); })
      .def("__call__", [](const DType& self, nb::handle x) { return Expr(self(operand(x, here()))); })
      .def(
          "__eq__",
          [](const DType& self, nb::handle other) {
            return nb::isinstance<DType>(other) && nb::cast<DType>(other) == self;
          },
          nb::arg("other").none())
      .def("__hash__", [](const DType& self) { return static_cast<int>(self.code); })
      .def("__repr__", [](const DType& self) { return nb::str(self.name().data(), self.name().size()); });
  nb::dict all;
  for (const DType dtype : all_dtypes) all[nb::str(dtype.name().data(), dtype.name().size())] = dtype;
  module.attr("lang_dtypes") = all;
}

}  // namespace tegula::python::language

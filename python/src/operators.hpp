// The operators as functions of the extension module. Python's own layer names, documents and allocates.
#pragma once
#include <nanobind/nanobind.h>

namespace tegula::python {

void define_gradients(nanobind::module_& module);
void define_explain(nanobind::module_& module);
void define_time(nanobind::module_& module);
void define_tables(nanobind::module_& module);
void define_table_call(nanobind::module_& module);

}  // namespace tegula::python

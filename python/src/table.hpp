// Values of tables as objects of Python.
#pragma once
#include <nanobind/nanobind.h>

#include "ops/schema/table.hpp"

namespace tegula::python {

// A real number that is `small` is the shortest that is the same float: 1e-06, not 9.99999997475243e-07.
nanobind::object value_of_option(const ops::OptionValue& value, bool small = true);

}  // namespace tegula::python

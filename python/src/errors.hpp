// Errors of Python from code that an array or a number brings along.
#pragma once
#include <nanobind/nanobind.h>

namespace tegula::python {

// Whether an error is none of the argument's, so that no other may take its place: Ctrl-C, the end of the
// program, or too little memory.
inline bool passes_through(const nanobind::python_error& error) {
  return !error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError);
}

}  // namespace tegula::python

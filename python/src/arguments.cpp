#include "arguments.hpp"

#include <fmt/format.h>

#include <limits>
#include <string>

#include "errors.hpp"

namespace tegula::python {

nb::handle Arguments::next() { return read_ < count_ ? PyTuple_GetItem(given_, read_++) : Py_None; }

void Arguments::refuse(const char* name, const char* expected, nb::handle given) const {
  const std::string type = given.is_none() ? "None" : nb::type_name(given.type()).c_str();
  throw nb::type_error(fmt::format("{}: {}: expected {}, given {}", function_, name, expected, type).c_str());
}

void Arguments::refuse_failed(const char* name, const char* expected, nb::handle given) const {
  const nb::python_error error;
  if (passes_through(error)) throw error;
  refuse(name, expected, given);
}

void Arguments::refuse_size(const char* name, int bits, nb::handle given) const {
  throw nb::type_error(fmt::format("{}: {}: expected an integer of {} bits, given {}", function_, name, bits,
                                   nb::str(given).c_str())
                           .c_str());
}

bool Arguments::flag(const char* name) {
  const nb::handle given = next();
  if (given.ptr() != Py_True && given.ptr() != Py_False) refuse(name, "bool", given);
  return given.ptr() == Py_True;
}

std::int64_t Arguments::integer(const char* name) {
  const nb::handle given = next();
  nb::object index = nb::borrow(given);
  if (!PyLong_Check(given.ptr())) {
    index = nb::steal(PyNumber_Index(given.ptr()));
    if (!index.is_valid()) refuse_failed(name, "int", given);
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0) refuse_size(name, 64, index);
  return value;
}

int Arguments::small_integer(const char* name) {
  const Py_ssize_t at = read_;
  const std::int64_t value = integer(name);
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
    refuse_size(name, 32, PyTuple_GetItem(given_, at));
  return static_cast<int>(value);
}

double Arguments::number(const char* name) {
  const nb::handle given = next();
  const double value = PyFloat_AsDouble(given.ptr());
  if (value == -1.0 && PyErr_Occurred()) refuse_failed(name, "float", given);
  return value;
}

std::optional<float> Arguments::optional_number(const char* name) {
  const nb::handle given = next();
  if (given.is_none()) return std::nullopt;
  const double value = PyFloat_AsDouble(given.ptr());
  if (value == -1.0 && PyErr_Occurred()) refuse_failed(name, "float or None", given);
  return static_cast<float>(value);
}

std::string_view Arguments::text(const char* name) {
  const nb::handle given = next();
  if (!PyUnicode_Check(given.ptr())) refuse(name, "str", given);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(given.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<std::size_t>(size)};
}

std::string_view Arguments::text_or(const char* name, std::string_view without) {
  return read_ < count_ ? text(name) : without;
}

}  // namespace tegula::python

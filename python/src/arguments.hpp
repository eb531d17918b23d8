// The arguments of a function of the module.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tegula::python {

namespace nb = nanobind;

// Read one after another, as the signature has them. One of a wrong type is a TypeError that names it. Those
// at the end that are not given are None.
class Arguments {
 public:
  Arguments(const char* function, const nb::args& given)
      : function_(function), given_(given.ptr()), count_(static_cast<Py_ssize_t>(given.size())) {}

  nb::handle array() { return next(); }  // or None: whoever reads it as an array refuses what is none
  bool flag(const char* name);
  std::int64_t integer(const char* name);
  int small_integer(const char* name);
  double number(const char* name);
  std::optional<float> optional_number(const char* name);
  std::string_view text(const char* name);
  std::string_view text_or(const char* name, std::string_view without);  // `without` where it is not given

 private:
  nb::handle next();
  [[noreturn]] void refuse(const char* name, const char* expected, nb::handle given) const;
  // After a conversion has failed with an error of Python.
  [[noreturn]] void refuse_failed(const char* name, const char* expected, nb::handle given) const;
  [[noreturn]] void refuse_size(const char* name, int bits, nb::handle given) const;

  const char* function_;
  PyObject* given_;
  Py_ssize_t count_, read_ = 0;
};

}  // namespace tegula::python

#include <nanobind/nanobind.h>

#include <cctype>
#include <string>
#include <string_view>

#include "call.hpp"
#include "lang.hpp"
#include "operators.hpp"
#include "spelling.hpp"
#include "tegula/error.hpp"
#include "tegula/stream.hpp"

namespace {

// What the library's texts call by its name in C++, and Python by another.
constexpr struct {
  std::string_view cpp, python;
} names[] = {
    {"Target::cpu()", "target=\"cpu\""},
    {"e4m3", "float8_e4m3fn"},
    {"e5m2", "float8_e5m2"},
    {"bf16", "bfloat16"},
    {"f16", "float16"},
    {"f32", "float32"},
    {"f64", "float64"},
    {"i32", "int32"},
    {"i64", "int64"},
};

bool continues_word(const std::string& text, std::size_t at) {
  return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
}

// The remedy for kernels of one's own, which Python has none of.
void cut_aliases(std::string& text) {
  constexpr std::string_view begin = ", or declare may_alias(", end = " in a kernel of your own";
  const std::size_t first = text.find(begin), last = text.find(end);
  if (first != std::string::npos && last != std::string::npos && first < last)
    text.erase(first, last + end.size() - first);
}

std::string in_python(std::string text) {
  cut_aliases(text);
  for (const auto& [cpp, python] : names) {
    for (std::size_t at = 0; (at = text.find(cpp, at)) != std::string::npos; ++at) {
      if (continues_word(text, at - 1) || continues_word(text, at + cpp.size())) continue;
      text.replace(at, cpp.size(), python);
    }
  }
  return text;
}

// The class of errors in programs, made when the module is.
PyObject*& program_error() {
  static PyObject* type = nullptr;
  return type;
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const tegula::ProgramError& error) {
    PyErr_SetString(program_error(), tegula::python::spelled_as_its_source(error.what()).c_str());
  } catch (const tegula::ArgumentError& error) {
    PyErr_SetString(PyExc_ValueError, in_python(error.what()).c_str());
  } catch (const tegula::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, in_python(error.what()).c_str());
  }
}

}  // namespace

NB_MODULE(_tegula, module) {
  module.doc() = "The operators of Tegula over DLPack; use the package `tegula`.";
  // Arrays that another library has taken over may live until the interpreter has ended.
  nanobind::set_leak_warnings(false);
  nanobind::register_exception_translator(translate);
  module.def(
      "synchronize",
      [](int device) {
        const tegula::python::InModule here;
        const tegula::python::WithoutLock released;
        tegula::synchronize(tegula::Device::cuda(device));
      },
      nanobind::arg("device"));
  program_error() = PyErr_NewException("tegula.ProgramError", PyExc_RuntimeError, nullptr);
  module.attr("ProgramError") = nanobind::borrow(program_error());
  tegula::python::register_end(module);
  tegula::python::define_array(module);
  tegula::python::define_gradients(module);
  tegula::python::define_explain(module);
  tegula::python::define_time(module);
  tegula::python::define_tables(module);
  tegula::python::define_table_call(module);
  tegula::python::language::define_values(module);
  tegula::python::language::define_places(module);
  tegula::python::language::define_packed(module);
  tegula::python::language::define_control(module);
  tegula::python::language::define_tile_ops(module);
  tegula::python::language::define_kernels(module);
  tegula::python::language::define_load(module);
}

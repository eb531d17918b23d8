// Kernels of shared libraries that are compiled from files of the user's (tegula/_load.py writes what they
// export).
#include <dlfcn.h>
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>

#include "lang.hpp"
#include "runtime/execution/host_compiler.hpp"
#include "tegula/error.hpp"
#include "tegula/version.hpp"

#ifndef TEGULA_BUILD_INCLUDE
#define TEGULA_BUILD_INCLUDE ""
#define TEGULA_BUILD_LIBRARIES ""
#endif

namespace tegula::python::language {

namespace {

struct Loaded {
  nb::list kernels;
  std::string error;
};

using Add = void(void* loaded, const void* kernel);
using Fail = void(void* loaded, const char* message);
using GiveKernels = void(void* loaded, Add*, Fail*);

void add(void* loaded, const void* kernel) {
  // The same type in the other library, whose version is that of this one.
  static_cast<Loaded*>(loaded)->kernels.append(
      adopt_kernel(*static_cast<const std::shared_ptr<const ir::Kernel>*>(kernel)));
}
void fail(void* loaded, const char* message) { static_cast<Loaded*>(loaded)->error = message; }

template <class Function>
Function* symbol(void* library, const char* name, const std::string& path) {
  void* found = dlsym(library, name);
  if (found == nullptr) throw DeviceError(fmt::format("{} has no {}", path, name));
  return reinterpret_cast<Function*>(found);
}

// The library stays for good: its kernels name files and lines by its constants.
nb::list load_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw DeviceError(fmt::format("{} cannot be opened: {}", path, dlerror()));
  Loaded loaded;
  symbol<GiveKernels>(library, "tegula_python_kernels", path)(&loaded, add, fail);
  if (!loaded.error.empty()) {
    PyErr_SetString(nb::module_::import_("tegula._tegula").attr("ProgramError").ptr(), loaded.error.c_str());
    throw nb::python_error();
  }
  return loaded.kernels;
}

nb::object host_compiler() {
  const auto found = HostCompiler::find();
  if (!found) return nb::none();
  return nb::make_tuple(found->path(), found->version());
}

}  // namespace

void define_load(nb::module_& module) {
  module.def("load_library", load_library);
  module.def("host_compiler", host_compiler);
  module.attr("version") = TEGULA_VERSION_TEXT;
  module.attr("build_folders") = nb::make_tuple(TEGULA_BUILD_INCLUDE, TEGULA_BUILD_LIBRARIES);
}

}  // namespace tegula::python::language

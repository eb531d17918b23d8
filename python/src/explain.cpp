// Which way a call takes, by the names that the registry of operators has.
#include "tegula/explain.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include "call.hpp"
#include "operators.hpp"
#include "options.hpp"

namespace tegula::python {

namespace {

std::string explain_call(const std::string& op, const nb::dict& arrays,
                         const std::map<std::string, std::string>& options, const std::string& target) {
  Call call;
  std::map<std::string, Tensor> inputs;
  for (const auto& [key, array] : arrays) {
    const auto name = nb::cast<std::string>(key);
    inputs.emplace(name, Tensor::adopt(call.input(name.c_str(), array), nullptr));
  }
  std::string text;
  const auto kernels = call.run([&] { return explain(op, inputs, options, target_of(target)); });
  for (const Explanation& kernel : kernels) text += kernel.text();
  return text;
}

}  // namespace

void define_explain(nb::module_& module) {
  module.def("explain", explain_call, nb::arg("op"), nb::arg("arrays"), nb::arg("options"),
             nb::arg("target"));
}

}  // namespace tegula::python

#include "ahead/header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/print.hpp"

namespace tegula::ahead {

namespace {

std::string_view c_type(DType type) {
  if (type == f32) return "float";
  if (type == f64) return "double";
  if (type == i64) return "int64_t";
  return type == u32 ? "uint32_t" : "int32_t";
}

std::string declaration(const Signature& signature, const std::string& name) {
  std::string parameters;
  for (const ir::Parameter& own : signature.kernel().parameters)
    parameters += own.tensor ? fmt::format("const tegula_tensor* {}, ", own.tensor->name)
                             : fmt::format("{} {}, ", c_type(own.scalar->type), own.scalar->name);
  return fmt::format("int32_t {}_{}({}void* stream)", name, signature.kernel().name, parameters);
}

// `A: bf16[M, K], read`
std::string words_of(const ir::Buffer& tensor) {
  std::vector<std::string> extents;
  for (const ir::Expr& e : tensor.shape) extents.push_back(ir::print(e));
  const char* use = tensor.role == ir::Role::input    ? "read"
                    : tensor.role == ir::Role::output ? "written"
                                                      : "read and written";
  return fmt::format("{}: {}[{}], {}", tensor.name, tensor.type.name(), fmt::join(extents, ", "), use);
}

}  // namespace

std::string header(const std::vector<BundledKernel>& kernels, const std::string& name) {
  std::string text = fmt::format(
      "/* Kernels that Tegula compiled ahead of time; link lib{0}.so, or open it. Functions return a "
      "tegula_status. `stream` is a "
      "CUstream\n * or cudaStream_t, null for the default one; calls on host memory ignore it and return "
      "when all is written. */\n"
      "#ifndef TEGULA_BUNDLE_{0}_H\n#define TEGULA_BUNDLE_{0}_H\n#include \"tegula_bundle.h\"\n\n"
      "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n/* Of the calling thread's last call; empty if it "
      "succeeded. */\n"
      "const char* {0}_error(void);\n",
      name);
  for (const BundledKernel& kernel : kernels) {
    std::vector<std::string> tensors;
    for (std::size_t i = 0; i < kernel.signature.parameter_tensors(); ++i)
      tensors.push_back(words_of(*kernel.signature.buffers()[i]));
    text += fmt::format("\n/* {} */\n{};\n", fmt::join(tensors, "; "), declaration(kernel.signature, name));
  }
  return text + "\n#ifdef __cplusplus\n}\n#endif\n#endif\n";
}

std::string definitions(const std::vector<BundledKernel>& kernels, const std::string& name) {
  constexpr std::string_view visible = "__attribute__((visibility(\"default\"))) ";
  std::string text =
      fmt::format("{}const char* {}_error(void) {{ return bundle::error(); }}\n", visible, name);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    std::string tensors, scalars;
    for (const ir::Parameter& own : kernels[i].signature.kernel().parameters) {
      if (own.tensor)
        tensors += own.tensor->name + ", ";
      else
        scalars += own.scalar->type.is_floating() ? "{0, " + own.scalar->name + "}, "
                                                  : "{" + own.scalar->name + ", 0}, ";
    }
    text += fmt::format(
        "{}{} {{\n  const tegula_tensor* const tensors_[] = {{{}nullptr}};\n  const bundle::Scalar "
        "scalars_[] = {{{}{{0, 0}}}};\n"
        "  return bundle::run(kernel_{}, tensors_, scalars_, stream);\n}}\n",
        visible, declaration(kernels[i].signature, name), tensors, scalars, i);
  }
  return text;
}

}  // namespace tegula::ahead

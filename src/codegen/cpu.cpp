#include "codegen/cpu.hpp"

#include <fmt/format.h>

#include "codegen/grid_printer.hpp"
#include "passes/passes.hpp"

namespace tegula::codegen {

CpuProgram print_cpu(const Signature& signature) {
  const ir::Kernel kernel = passes::for_cpu(signature.kernel());
  CpuProgram program;
  Writer out;
  out.line("#include \"kernel.hpp\"");
  out.line("using namespace tegula_cpu;");
  int number = 0;
  for (const ir::Grid& grid : kernel.grids) GridPrinter(signature, program, out).print(grid, number++);
  for (std::size_t i = 0; i < program.ordered.size(); ++i) {
    CpuProgram::Ordered& ordered = program.ordered[i];
    const std::string function = fmt::format("{}_apply_{}", kernel.name, i);
    out.line(
        fmt::format("extern \"C\" void {}(const void* contribution, int64_t bytes) {{ "
                    "apply_contribution<{}>(contribution, bytes); }}",
                    function, ordered.function));
    ordered.function = function;
  }
  program.text = out.text();
  return program;
}

std::string without_comments(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    result += line.substr(0, line.find("  //")) + '\n';
    at = end + 1;
  }
  return result;
}

}  // namespace tegula::codegen

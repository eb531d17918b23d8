#include "texts.hpp"

#include <fmt/format.h>

#include "codegen/cpu.hpp"
#include "ir/print.hpp"
#include "passes/passes.hpp"

namespace tegula::tool {

std::string passes_text(const lang::Kernel& kernel) {
  std::string text = "---- as written\n" + ir::print(*kernel.ir()) + "\n";
  int number = 0;
  passes::run(passes::cpu_passes(), *kernel.ir(),
              [&](const passes::Pass& pass, const ir::Kernel& before, const ir::Kernel& after) {
                const std::string now = ir::print(after);
                text += fmt::format("---- {}. {}: {}\n", ++number, pass.name, pass.reason);
                text += now == ir::print(before) ? "(changes nothing)\n\n" : now + "\n";
              });
  return text;
}

std::string cpp_text(const lang::Kernel& kernel) { return codegen::print_cpu(Signature(kernel.ir())).text; }

}  // namespace tegula::tool

#include "texts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "codegen/cpu.hpp"
#include "diff.hpp"
#include "ir/print.hpp"
#include "passes/passes.hpp"

namespace tegula::tool {

std::string without_places(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.size(), line.rfind("// ")));
    line.resize(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  }
  return result;
}

std::string pass_differences(const lang::Kernel& kernel, std::span<const passes::Pass> passes) {
  std::string text;
  int number = 0;
  passes::run(
      passes, *kernel.ir(), [&](const passes::Pass& pass, const ir::Kernel& before, const ir::Kernel& after) {
        // The column of the places depends on the longest line.
        const auto changes = diff(without_places(ir::print(before)), without_places(ir::print(after)));
        text +=
            fmt::format("{}---- {}. {}: {}\n", number == 0 ? "" : "\n", number + 1, pass.name, pass.reason);
        text += changes.empty() ? "changes nothing\n" : changes;
        ++number;
      });
  return text;
}

std::string cpp_text(const lang::Kernel& kernel) { return codegen::print_cpu(Signature(kernel.ir())).text; }

}  // namespace tegula::tool

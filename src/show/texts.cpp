#include "show/texts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "codegen/cpu.hpp"
#include "codegen/cuda_program.hpp"
#include "show/diff.hpp"
#include "passes/cuda/cuda_passes.hpp"

namespace tegula::shown {

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

namespace {

// Writes down what passes change.
class Differences {
 public:
  std::string text;

  passes::Observer observer() {
    return [this](const passes::PassRun& own) {
      // The column of the places depends on the longest line.
      const auto changes = diff(without_places(own.before), without_places(own.after));
      text += fmt::format("{}---- {}. {}: {}\n", text.empty() ? "" : "\n", ++number_, own.pass, own.reason);
      text += changes.empty() ? "changes nothing\n" : changes;
    };
  }

 private:
  int number_ = 0;
};

}  // namespace

std::string pass_differences(const lang::Kernel& kernel) {
  Differences differences;
  passes::run(passes::cpu_passes(), *kernel.ir(), differences.observer());
  return std::move(differences.text);
}

std::string pass_differences(const lang::Kernel& kernel, const passes::CudaTarget& target) {
  Differences differences;
  const auto program = codegen::print_cuda(Signature(kernel.ir()), target);
  passes::plan_for_cuda(*kernel.ir(), target, program.plan->shown, differences.observer());
  return std::move(differences.text);
}

std::string cpp_text(const lang::Kernel& kernel) { return codegen::print_cpu(Signature(kernel.ir())).text; }

}  // namespace tegula::shown

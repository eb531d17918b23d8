#include "codegen/cuda/steps.hpp"

namespace tegula::codegen {

bool Memory::overlaps(const Memory& other) const {
  return tensor == other.tensor && begin < other.end && other.begin < end;
}

std::string text_of(const std::vector<Step>& steps, int depth) {
  std::string text;
  const auto line = [&](const std::string& content, int at) {
    text.append(static_cast<std::size_t>(2 * at), ' ');
    text += content + '\n';
  };
  for (const Step& step : steps) {
    for (const std::string& content : step.lines) line(content, depth);
    if (step.kind == StepKind::code) continue;
    text += text_of(step.body, depth + 1);
    line("}", depth);
  }
  return text;
}

}  // namespace tegula::codegen

#include "codegen/cuda/sync_rules.hpp"

namespace tegula::codegen {
namespace {

// What is done by the first thread of a group is done by as many threads as there are groups.
std::vector<MemoryTouch> all_touches(const std::vector<Step>& steps) {
  std::vector<MemoryTouch> result;
  for (const Step& step : steps) {
    for (MemoryTouch touch : step.touches) {
      touch.by_one = false;
      result.push_back(touch);
    }
    const std::vector<MemoryTouch> inside = all_touches(step.body);
    result.insert(result.end(), inside.begin(), inside.end());
  }
  return result;
}

}  // namespace

bool conflict(const MemoryTouch& a, const MemoryTouch& b) {
  if (b.is_over || (a.is_over && a.ring == b.ring)) return false;
  if (a.use == b.use && a.use != MemoryUse::write) return false;
  if (a.half >= 0 && b.half >= 0 && a.memory.begin == b.memory.begin && a.half != b.half) return false;
  return !(a.by_one && b.by_one) && a.memory.overlaps(b.memory);
}

bool is_apart(const Step& step) { return step.kind == StepKind::group || step.kind == StepKind::rows; }

std::vector<MemoryTouch> touches_of(const std::vector<Step>& steps, std::size_t i) {
  const Step& step = steps[i];
  std::vector<MemoryTouch> touches = is_apart(step) ? all_touches(step.body) : step.touches;
  if (step.kind == StepKind::rows && i + 1 < steps.size() && steps[i + 1].kind == StepKind::otherwise) {
    const std::vector<MemoryTouch> others = all_touches(steps[i + 1].body);
    touches.insert(touches.end(), others.begin(), others.end());
  }
  return touches;
}

}  // namespace tegula::codegen

#include "codegen/cuda/step_writer.hpp"

#include <fmt/format.h>

namespace tegula::codegen {

std::string location_in_folder(const Loc& at) {
  std::string_view file = at.file_name();
  const std::size_t name = file.rfind('/');
  if (name != std::string_view::npos && name > 0) file = file.substr(file.rfind('/', name - 1) + 1);
  return fmt::format("{}:{}", file, at.line());
}

void StepWriter::code() {
  internal_assert(depth_ == 0, "a piece of code ends before the next");
  here().emplace_back();
  in_code_ = true;
}

void StepWriter::touch(const MemoryTouch& touch) {
  if (!in_code_) code();
  here().back().touches.push_back(touch);
}

void StepWriter::barrier(const std::string& text) {
  code();
  line(text);
  here().back().is_barrier = true;
  in_code_ = false;
}

void StepWriter::publish(const std::string& fence, const std::string& barrier_text) {
  code();
  line(fence);
  barrier(barrier_text);
  here().back().publishes = true;
}

bool StepWriter::is_published(const Memory& memory) const {
  const std::vector<Step>& steps = here();
  for (auto step = steps.rbegin(); step != steps.rend() && step->kind == StepKind::code; ++step) {
    if (step->publishes) return true;
    if (step->brings) return false;
    for (const MemoryTouch& touch : step->touches)
      if (touch.use != MemoryUse::read && touch.memory.overlaps(memory)) return false;
  }
  return false;
}

void StepWriter::line(const std::string& text) {
  if (!in_code_) code();
  here().back().lines.push_back(std::string(static_cast<std::size_t>(2 * depth_), ' ') + text);
}

void StepWriter::line(const std::string& text, const Loc& at) {
  line(fmt::format("{}  // {}", text, location_in_folder(at)));
}

void StepWriter::define(std::string_view type, const std::string& name, const std::string& value) {
  line(definition(name, fmt::format("const {} {} = {};", type, name, value)));
}

void StepWriter::open(const std::string& text) {
  line(text);
  ++depth_;
}

void StepWriter::close(const std::string& behind) {
  --depth_;
  line("}" + behind);
}

void StepWriter::reopen(const std::string& text) {
  --depth_;
  open(text);
}

void StepWriter::open_step(StepKind kind, const std::string& text, const std::string& barrier) {
  internal_assert(depth_ == 0, "a piece of code ends before the next");
  Step step;
  step.kind = kind;
  step.lines.push_back(text);
  step.barrier = barrier;
  here().push_back(std::move(step));
  loops_.push_back(kind == StepKind::loop || loops_.empty() ? &here().back() : loops_.back());
  open_.push_back(&here().back().body);
  in_code_ = false;
}

void StepWriter::close_step() {
  open_.pop_back();
  loops_.pop_back();
  in_code_ = false;
}

}  // namespace tegula::codegen

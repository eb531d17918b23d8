#include "runtime/execution/recorded.hpp"

namespace tegula {

namespace {
thread_local RecordedCalls* recording = nullptr;
}

RecordedCalls::RecordedCalls(Mode mode) : mode_(mode), outer_(recording) { recording = this; }
RecordedCalls::~RecordedCalls() { recording = outer_; }

bool RecordedCalls::nothing_runs() { return recording != nullptr && recording->mode_ == Mode::nothing_runs; }

void RecordedCalls::add(const std::shared_ptr<const Signature>& signature, const Binding& binding) {
  if (!recording) return;
  RecordedCall call{signature, {}};
  const auto& variables = signature->variables();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const ir::Value& value = binding.values[i];
    call.values[variables[i]->name] =
        value.type.is_floating() ? value.real : static_cast<double>(value.integer);
  }
  recording->calls_.push_back(std::move(call));
}

}  // namespace tegula

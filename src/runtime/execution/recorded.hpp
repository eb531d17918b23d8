// Records the kernel calls of a thread, for counting and estimating.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runtime/call/binding.hpp"

namespace tegula {

struct RecordedCall {
  std::shared_ptr<const Signature> signature;
  std::map<std::string, double> values;  // of dims and scalars, by name
};

// Records those of this thread until the end of the scope.
class RecordedCalls {
 public:
  // `nothing_runs`: kernels are then neither compiled nor run, and results stay undefined. An operator keeps
  // what it has compiled, so a process that records in this way must not run operators later.
  enum class Mode { calls_run, nothing_runs };
  explicit RecordedCalls(Mode mode = Mode::calls_run);
  ~RecordedCalls();
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  const std::vector<RecordedCall>& calls() const { return calls_; }
  // Nothing where nobody records.
  static void add(const std::shared_ptr<const Signature>& signature, const Binding& binding);
  static bool nothing_runs();

 private:
  Mode mode_;
  std::vector<RecordedCall> calls_;
  RecordedCalls* outer_;
};

}  // namespace tegula

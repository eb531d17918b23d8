// The calls of kernels that a thread makes, as what counts and estimates need.
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

// Records those of this thread until the end of the scope; they run all the same.
class RecordedCalls {
 public:
  RecordedCalls();
  ~RecordedCalls();
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  const std::vector<RecordedCall>& calls() const { return calls_; }
  // Nothing where nobody records.
  static void add(const std::shared_ptr<const Signature>& signature, const Binding& binding);

 private:
  std::vector<RecordedCall> calls_;
  RecordedCalls* outer_;
};

}  // namespace tegula

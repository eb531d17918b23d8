// Ranges by name for NVIDIA's profilers, by the protocol of NVTX 3, which needs no library of NVIDIA's: a
// profiler sets NVTX_INJECTION64_PATH to a library of its own. That is loaded once, and its function
// InitializeInjectionNvtx2 fills a table of functions, null as long as no profiler does.
#pragma once
#include <memory>
#include <string>

#include "cuda/library.hpp"

namespace tegula::cuda {

struct RangeFunctions {
  int (*push)(const char*);
  int (*pop)();
  std::shared_ptr<const Library> library;  // of the profiler
};

// Null functions if the library cannot be loaded or refuses.
RangeFunctions load_ranges(const std::string& profiler);

// A range around a call, from here to the end of the scope; nothing where no profiler listens.
class Range {
 public:
  explicit Range(const std::string& name) : Range(name, of_process()) {}
  Range(const std::string& name, const RangeFunctions& functions)
      : pop_(functions.push ? functions.pop : nullptr) {
    if (pop_) functions.push(name.c_str());
  }
  ~Range() {
    if (pop_) pop_();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  static const RangeFunctions& of_process();
  int (*pop_)();
};

}  // namespace tegula::cuda

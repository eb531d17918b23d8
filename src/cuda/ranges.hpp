// Ranges by name for NVIDIA's profilers (NVTX). A profiler sets NVTX_INJECTION64_PATH to show that it
// listens; only then is the library that passes ranges on to it loaded, libnvToolsExt of CUDA 12, if the
// machine has it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cuda/library.hpp"

namespace tegula::cuda {

struct RangeFunctions {
  int (*push)(const char*);
  int (*pop)();
  std::shared_ptr<const Library> library;
};

// Null functions if none of the files can be loaded.
RangeFunctions load_ranges(const std::vector<std::string>& paths);

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

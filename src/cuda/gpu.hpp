// The GPUs of this process. Each has one context, the primary one, which other libraries share; it is
// retained for good, because kernels and tensors may outlive every other object.
#pragma once
#include <cstddef>
#include <string>

#include "cuda/driver.hpp"
#include "tegula/tensor.hpp"

namespace tegula::cuda {

class Reports;
class Workspaces;

class Gpu {
 public:
  // An ArgumentError if there is none of that number, a DeviceError if there is no driver.
  static Gpu& get(int index);
  static int count();

  int index() const { return index_; }
  const Driver& driver() const { return driver_; }
  const std::string& name() const { return name_; }
  int architecture() const { return architecture_; }  // 10 · major + minor
  int multiprocessors() const { return multiprocessors_; }
  std::size_t shared_limit() const { return shared_limit_; }  // of a block
  std::size_t l2_bytes() const { return l2_bytes_; }
  int clock_khz() const { return clock_khz_; }
  ContextHandle context() const { return context_; }
  Reports& reports() const { return *reports_; }
  Workspaces& workspaces() const { return *workspaces_; }

 private:
  Gpu(const Driver& driver, int index);
  int attribute(const Driver& driver, DeviceAttribute attribute) const;

  const Driver& driver_;
  int index_ = 0;
  DeviceHandle handle_ = 0;
  std::string name_;
  int architecture_ = 0, multiprocessors_ = 0;
  std::size_t shared_limit_ = 0, l2_bytes_ = 0;
  int clock_khz_ = 0;
  ContextHandle context_ = nullptr;
  Reports* reports_ = nullptr;  // both as long as the process
  Workspaces* workspaces_ = nullptr;
};

// Makes a GPU's context the thread's current one until the end of the scope.
class CurrentContext {
 public:
  explicit CurrentContext(const Gpu& gpu);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

}  // namespace tegula::cuda

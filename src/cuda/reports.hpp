// Reports of running kernels: failed assertions. A report is a word of host memory that the device can write,
// so that looking at it costs nothing and needs no copy.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/gpu.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda {

// The assertion reports of one compiled kernel on one GPU.
class Report {
 public:
  struct Assertion {
    std::string message;
    Loc at;
  };
  Report(std::string kernel, std::vector<Assertion> assertions, std::uint64_t* word, DeviceAddress address)
      : kernel_(std::move(kernel)), assertions_(std::move(assertions)), word_(word), address_(address) {}

  // The low half of the word is the number of the assertion + 1 (0: none failed), the high half the block.
  DeviceAddress address() const { return address_; }
  // The assertion that failed, as a message to the user; it is forgotten.
  std::optional<Assertion> take() const;

 private:
  std::string kernel_;
  std::vector<Assertion> assertions_;
  std::uint64_t* word_;
  DeviceAddress address_;
};

// All reports of one GPU.
class Reports {
 public:
  explicit Reports(const Gpu& gpu) : gpu_(gpu) {}

  std::shared_ptr<const Report> add(const std::string& kernel, std::vector<Report::Assertion> assertions);
  // Throws a ProgramError for the assertions that failed, and forgets all of them: kernels of one call often
  // fail together.
  void check();

 private:
  const Gpu& gpu_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Report>> reports_;
  std::uint64_t *next_ = nullptr, *end_ = nullptr;  // words that are still free
  DeviceAddress next_address_ = 0;
};

}  // namespace tegula::cuda

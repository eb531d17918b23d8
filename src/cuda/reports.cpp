#include "cuda/reports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace tegula::cuda {
namespace {

constexpr std::size_t words_at_once = 512;
constexpr unsigned portable_and_mapped = 3;

}  // namespace

std::optional<Report::Assertion> Report::take() const {
  const std::uint64_t failed = std::atomic_ref(*word_).exchange(0);
  const auto number = static_cast<std::uint32_t>(failed);
  if (number == 0) return std::nullopt;
  internal_assert(number <= assertions_.size(), "a kernel reports an assertion that it does not have");
  const Assertion& assertion = assertions_[number - 1];
  return Assertion{fmt::format("assertion failed: {} [kernel '{}', block {} of its launch]",
                               assertion.message, kernel_, failed >> 32),
                   assertion.at};
}

std::shared_ptr<const Report> Reports::add(const std::string& kernel,
                                           std::vector<Report::Assertion> assertions) {
  const std::lock_guard lock(mutex_);
  if (next_ == end_) {
    const CurrentContext current(gpu_);
    const Driver& d = driver();
    void* memory = nullptr;
    d(d.MemHostAlloc, &memory, words_at_once * sizeof(std::uint64_t), portable_and_mapped);
    d(d.MemHostGetDevicePointer, &next_address_, memory, 0u);
    next_ = static_cast<std::uint64_t*>(memory);
    end_ = next_ + words_at_once;
    std::fill(next_, end_, 0);
  }
  reports_.push_back(std::make_shared<const Report>(kernel, std::move(assertions), next_++, next_address_));
  next_address_ += sizeof(std::uint64_t);
  return reports_.back();
}

void Reports::check() {
  const std::lock_guard lock(mutex_);
  std::optional<Report::Assertion> first;
  for (const auto& report : reports_) {
    const auto failed = report->take();
    if (failed && first)
      first->message += "; " + failed->message;
    else if (failed)
      first = failed;
  }
  // Kernels that are gone have nothing more to say once all work is done; a word is not used twice.
  std::erase_if(reports_, [](const auto& report) { return report.use_count() == 1; });
  if (first) throw ProgramError(first->message, first->at);
}

}  // namespace tegula::cuda

// Runs programs on all executors and compares what they wrote.
#pragma once
#include "fuzz/executors.hpp"

namespace tegula::fuzz {

struct Failure {
  std::string executor;  // that disagrees with the reference, or failed; "contract" if the program is wrong
  std::string message;
};

struct Verdict {
  bool discarded = false;  // the reference refused the program
  std::string reason;      // why
  std::optional<Failure> failure;
};

std::vector<Verdict> check(std::span<const Program> programs, std::span<const Executor> executors);

// Where the arguments differ by more than the contracts of the outputs allow; empty if nowhere.
std::string difference(const Program& program, const std::vector<Given>& expected,
                       const std::vector<Given>& found);

}  // namespace tegula::fuzz

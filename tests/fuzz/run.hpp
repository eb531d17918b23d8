// A run of the fuzzer: many programs in child processes, and what came out.
#pragma once
#include <chrono>
#include <map>

#include "fuzz/check.hpp"
#include "fuzz/generator.hpp"

namespace tegula::fuzz {

struct RunOptions {
  std::uint64_t seed = 1;  // of the first program; the others follow
  int count = 100;
  int batch = 50;  // programs in one child and one compilation
  int jobs = 2;
  double seconds = 1e9;                      // starts no batch after this time
  std::chrono::seconds timeout{120};         // of a batch
  std::chrono::seconds program_timeout{30};  // of one program
  // Level for the host's compiler. Most of the time goes there, and mistakes of printed text show without.
  int optimise = 2;
  bool shrink = true;
  int most_failures = 5;  // then the run ends
};

struct Report {
  std::uint64_t seed;
  Failure failure;
  std::string program;  // as reduced as it could be
  int statements = 0;   // of it
};

struct Summary {
  int programs = 0, discarded = 0;
  std::map<std::string, int> reasons;            // why programs were discarded, without places
  std::map<std::string, std::int64_t> coverage;  // of programs that ran
  std::vector<Report> failures;

  // One paragraph for people.
  std::string text() const;
};

Summary run(const RunOptions& options, std::span<const Executor> executors);

// The verdicts of programs that one child checks together; none if it does not end well.
std::vector<Verdict> check_together(std::span<const Program> programs, std::span<const Executor> executors,
                                    std::chrono::seconds timeout);
// The verdict of one program in a child; a crash or a time-out is a failure too.
Verdict check_alone(const Program& program, std::span<const Executor> executors,
                    std::chrono::seconds timeout);

}  // namespace tegula::fuzz

// What bench_programs times on a GPU fits the programs; nothing runs here.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/programs/timing.hpp"

namespace programs {
namespace {

// What a form says that is meant.
std::string refusals(const Timing& timing) {
  std::string text;
  for (const Program& program : all_programs()) {
    if (program.name != timing.program) continue;
    for (const Form& form : program.forms)
      if (const auto why = refusal(timing, form)) text += form.name + ": " + *why + "\n";
  }
  return text;
}

TEST(ProgramTimings, HaveAFormThatTakesTheirArguments) {
  const std::vector<TimedCase> cases = timed_cases();
  for (const Timing& timing : all_timings()) {
    EXPECT_TRUE(std::ranges::any_of(cases,
                                    [&](const TimedCase& own) {
                                      return own.timing.program == timing.program &&
                                             own.timing.shape == timing.shape;
                                    }))
        << timing.program << ", " << timing.shape << "\n"
        << refusals(timing);
    for (const std::string& begin : timing.forms) {
      EXPECT_TRUE(std::ranges::any_of(cases,
                                      [&](const TimedCase& own) {
                                        return own.timing.program == timing.program &&
                                               own.timing.shape == timing.shape &&
                                               own.form.name.starts_with(begin);
                                      }))
          << timing.program << ", " << timing.shape << ", " << begin << "\n"
          << refusals(timing);
    }
  }
}

TEST(ProgramTimings, CheckResultsThatTheyHave) {
  for (const Timing& timing : all_timings()) {
    if (!timing.check) continue;
    const auto arguments = timing.arguments();
    EXPECT_TRUE(std::ranges::any_of(arguments, [&](const TimedArgument& own) {
      return own.name == timing.check->result && std::holds_alternative<Result>(own.value);
    })) << timing.program;
  }
}

}  // namespace
}  // namespace programs

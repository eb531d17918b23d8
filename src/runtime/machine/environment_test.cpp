#include "runtime/machine/environment.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "runtime/testing/test_environment.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

TEST(Environment, TheTableFollowsTheEnumeration) {
  int position = 0;
  for (const VariableInfo& row : variables()) {
    EXPECT_EQ(static_cast<int>(row.variable), position++);
    EXPECT_EQ(row.name.substr(0, 7), "TEGULA_");
    EXPECT_FALSE(row.meaning.empty());
    EXPECT_NE(describe_variables().find(row.name), std::string::npos);
  }
}

TEST(Environment, TheDocumentHasEveryVariable) {
  std::ifstream file(TEGULA_SOURCE "/docs/design.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const VariableInfo& row : variables())
    EXPECT_NE(text.find(fmt::format("| `{}` | ", row.name)), std::string::npos) << row.name;
  for (const TestVariable& row : test_variables)
    EXPECT_NE(text.find(fmt::format("| `{}` | {} |", row.name, row.meaning)), std::string::npos) << row.name;
}

TEST(Environment, PartsOfATurnMeetAllRowsOfASample) {
  constexpr std::size_t turns = 6;
  const std::vector<int> rows{0, 1, 2, 3, 4, 5, 6};
  for (std::size_t turn = 0; turn < turns; ++turn) {
    std::set<int> met;
    for (std::size_t place = turn; place < test_parts.size(); place += turns)
      for (const int row : sample_of(rows, test_parts[place])) met.insert(row);
    EXPECT_EQ(met.size(), rows.size()) << turn;
  }
  EXPECT_EQ(sample_of(rows, 'a').size(), 3);
  EXPECT_TRUE(sample_of(std::vector<int>(), 'a').empty());
}

TEST(Environment, UnsetAndEmptyAreNothing) {
  const ScopedVariable unset(Variable::num_threads, std::nullopt);
  EXPECT_FALSE(environment(Variable::num_threads));
  const ScopedVariable empty(Variable::num_threads, "");
  EXPECT_FALSE(environment_integer(Variable::num_threads, 1, 8));
}

TEST(Environment, Integers) {
  const ScopedVariable good(Variable::num_threads, "8");
  EXPECT_EQ(environment_integer(Variable::num_threads, 1, 8), 8);
  for (const char* bad : {"0", "9", "x", "3x", "-1", " 3", "99999999999999999999"}) {
    const ScopedVariable variable(Variable::num_threads, bad);
    EXPECT_ERROR(ArgumentError, "TEGULA_NUM_THREADS=", environment_integer(Variable::num_threads, 1, 8));
  }
}

TEST(Environment, Bytes) {
  struct Case {
    const char* text;
    std::uint64_t bytes;
  };
  for (const Case& c :
       {Case{"0", 0}, Case{"12", 12}, Case{"3K", 3072}, Case{"500M", 500ull << 20}, Case{"2T", 2ull << 40}}) {
    const ScopedVariable variable(Variable::cache_limit, c.text);
    EXPECT_EQ(environment_bytes(Variable::cache_limit), c.bytes);
  }
  for (const char* bad : {"K", "3Q", "3KB", "-3", "99999999999T", "1.5G"}) {
    const ScopedVariable variable(Variable::cache_limit, bad);
    EXPECT_ERROR(ArgumentError, "number of bytes", environment_bytes(Variable::cache_limit));
  }
}

TEST(Environment, TargetsHaveTheNamesOfTheirFunctions) {
  constexpr std::pair<const char*, Target> targets[] = {{"interpreter", Target::interpreter()},
                                                        {"cpu", Target::cpu()},
                                                        {"emulated", Target::emulated()},
                                                        {"emulated_sm90", Target::emulated_sm90()},
                                                        {"cuda", Target::cuda()},
                                                        {"cuda_sm80", Target::cuda_sm80()}};
  for (const auto& [name, target] : targets) {
    const ScopedVariable variable(Variable::target, name);
    EXPECT_EQ(environment_target(), target) << name;
    EXPECT_EQ(Target::named(name), target) << name;
    EXPECT_NE(info(Variable::target).meaning.find(name), std::string_view::npos) << name;
  }
  for (const auto& none : {std::optional<std::string>(), std::optional<std::string>(""),
                           std::optional<std::string>("automatic")}) {
    const ScopedVariable variable(Variable::target, none);
    EXPECT_FALSE(environment_target());
  }
  for (const char* bad : {"gpu", "CPU", "auto", "cuda:sm_80", " cpu"}) {
    const ScopedVariable variable(Variable::target, bad);
    EXPECT_ERROR(ArgumentError,
                 "must be one of automatic, interpreter, cpu, cuda, cuda_sm80, emulated and emulated_sm90",
                 environment_target());
  }
}

}  // namespace
}  // namespace tegula

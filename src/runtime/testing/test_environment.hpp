// The environment variables of the tests: nothing else reads them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace tegula {

struct TestVariable {
  const char* name;
  const char* meaning;
};
inline constexpr TestVariable test_variables[] = {
    {"TEGULA_TEST_SEED", "where tests on random input begin, to repeat one that failed"},
    {"TEGULA_FUZZ_SEED", "the seed of the first random program"},
    {"TEGULA_FUZZ_COUNT", "how many random programs are compared"},
    {"TEGULA_TEST_ROWS",
     "'all': slow tables are not sampled; a to z and A to V: which part of 48 of the slow tests "
     "`scripts/test` runs, and which sample of a table"},
};

// The seed that is wished, or the test's own.
inline std::uint64_t test_seed(std::uint64_t own) {
  const char* given = std::getenv(test_variables[0].name);
  return given != nullptr && *given != '\0' ? std::strtoull(given, nullptr, 10) : own;
}

// Whether every row of slow tables is wished, of which a sample runs otherwise.
inline bool tests_all_rows() {
  const char* given = std::getenv(test_variables[3].name);
  return given != nullptr && std::string(given) == "all";
}

// The parts of `scripts/test`, in the order of their turns.
inline constexpr std::string_view test_parts = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV";

// Every third row, which third goes with the part: a test that takes six turns meets all of them in the parts
// that are its own.
template <class Row>
std::vector<Row> sample_of(const std::vector<Row>& rows, char part) {
  constexpr std::size_t turns = 6, thirds = 3;
  std::vector<Row> result;
  if (rows.empty()) return result;
  const std::size_t step = std::min(thirds, rows.size());
  for (std::size_t i = test_parts.find(part) / turns % step; i < rows.size(); i += step)
    result.push_back(rows[i]);
  return result;
}

// A sample, for the part that `scripts/test` runs, of a list of calls that take seconds each, of which single
// ones are tests of other files, too. All of them where TEGULA_TEST_ROWS is 'all'.
template <class Row>
std::vector<Row> sampled(const std::vector<Row>& rows) {
  if (tests_all_rows()) return rows;
  const char* part = std::getenv(test_variables[3].name);
  return sample_of(rows, part == nullptr || *part == '\0' ? test_parts.front() : *part);
}

}  // namespace tegula

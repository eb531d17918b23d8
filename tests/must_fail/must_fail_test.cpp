#include "tests/must_fail/must_fail.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/must_fail/rules.hpp"

namespace must_fail {
namespace {

void build_scene(const Case& c) {
  kernel("scene", [&] {
    Dim M("M");
    Tensor A = input("A", {M, 64}, f16), N = input("N", {M}, i32), C = output("C", {M, 64}, f32);
    grid(ceildiv(M, 64), [&](Index block) { c.in_grid({A, N, C, block}); });
  });
}

unsigned marked_line(const char* file) {
  std::ifstream stream(file);
  std::string line;
  for (unsigned number = 1; std::getline(stream, line); ++number)
    if (line.find("// error") != std::string::npos) return number;
  return 0;
}

class MustFailAtLine : public testing::TestWithParam<Case> {};

TEST_P(MustFailAtLine, NamesTheLineAndTheRule) {
  auto& c = GetParam();
  try {
    c.whole ? c.whole() : build_scene(c);
    FAIL() << "the program was accepted";
  } catch (const ProgramError& error) {
    EXPECT_NE(std::string(error.what()).find(c.words), std::string::npos) << error.what();
    EXPECT_EQ(error.where().line(), marked_line(c.file)) << error.what();
    EXPECT_EQ(std::filesystem::path(error.where().file_name()).filename(),
              std::filesystem::path(c.file).filename());
  }
}

std::string message_of(const Case& c) {
  try {
    c.whole ? c.whole() : build_scene(c);
  } catch (const ProgramError& error) { return error.what(); }
  return "";
}

// A rule of the front end without a program here is a rule that nobody has seen refuse anything.
TEST(MustFail, EveryRuleHasAProgram) {
  std::vector<std::string> messages;
  for (auto& c : cases()) messages.push_back(message_of(c));
  int rules = 0;
  for (auto& file : std::filesystem::directory_iterator(TEGULA_SOURCE "/src/lang"))
    for (auto& rule : rules_of(file.path().string(), {"fail", "check_option"})) {
      ++rules;
      EXPECT_TRUE(std::any_of(messages.begin(), messages.end(),
                              [&](auto& message) { return message.find(rule.words) != std::string::npos; }))
          << rule.place << ": " << rule.words;
    }
  EXPECT_GT(rules, 100);
}

INSTANTIATE_TEST_SUITE_P(Build, MustFailAtLine, testing::ValuesIn(cases()),
                         [](auto& info) { return std::filesystem::path(info.param.file).stem().string(); });

}  // namespace
}  // namespace must_fail

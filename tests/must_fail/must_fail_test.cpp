#include "tests/must_fail/must_fail.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

class MustFail : public testing::TestWithParam<Case> {};

TEST_P(MustFail, NamesTheLineAndTheRule) {
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

INSTANTIATE_TEST_SUITE_P(Build, MustFail, testing::ValuesIn(cases()),
                         [](auto& info) { return std::filesystem::path(info.param.file).stem().string(); });

}  // namespace
}  // namespace must_fail

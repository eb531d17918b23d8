#include <gtest/gtest.h>

#include "show/diff.hpp"
#include "tools/names.hpp"

namespace tegula::tool {
namespace {

TEST(Names, EditDistance) {
  struct {
    const char *one, *other;
    int distance;
  } table[] = {{"", "", 0},         {"", "abc", 3},      {"gemm", "gemm", 0}, {"gem", "gemm", 1},
               {"gmem", "gemm", 1}, {"gamm", "gemm", 1}, {"abc", "cba", 2},   {"attention", "atention", 1}};
  for (auto& row : table) {
    EXPECT_EQ(edit_distance(row.one, row.other), row.distance) << row.one << " " << row.other;
    EXPECT_EQ(edit_distance(row.other, row.one), row.distance) << row.one << " " << row.other;
  }
}

TEST(Names, NearestFirst) {
  const std::vector<std::string> names{"attention", "block_scores", "gemm", "gemv"};
  EXPECT_EQ(nearest("gemw", names), (std::vector<std::string>{"gemm", "gemv"}));
  EXPECT_EQ(nearest("gemv_", names), (std::vector<std::string>{"gemv"}));
  EXPECT_EQ(nearest("scores", names), (std::vector<std::string>{"block_scores"}));
  EXPECT_TRUE(nearest("convolution", names).empty());
}

TEST(Diff, MarksWhatChanged) {
  using shown::diff;
  struct {
    const char *before, *after, *expected;
  } table[] = {
      {"", "", ""},
      {"a\nb\n", "a\nb\n", ""},
      {"a\n", "", "-a\n"},
      {"", "a\n", "+a\n"},
      {"a\nb\nc\n", "a\nx\nc\n", " a\n-b\n+x\n c\n"},
      {"1\n2\n3\n4\n5\n6\n7\n8\n", "0\n1\n2\n3\n4\n5\n6\n7\n", "+0\n 1\n 2\n…\n 6\n 7\n-8\n"},
  };
  for (auto& row : table) EXPECT_EQ(diff(row.before, row.after), row.expected);
}

}  // namespace
}  // namespace tegula::tool

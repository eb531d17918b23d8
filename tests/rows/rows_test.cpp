// Tests of rows have the names that GoogleTest gives them, and run with their row.
#include "tests/rows/rows.hpp"

#include <map>
#include <string>
#include <vector>

namespace tegula::rows {
namespace {

struct Row {
  int number;
  std::string word;
};

std::map<std::string, int>& met() {
  static std::map<std::string, int> all;
  return all;
}

class RowsOfTests : public testing::TestWithParam<Row> {
 public:
  static void SetUpTestSuite() { met()["set up"] = 1; }
};

TEST_P(RowsOfTests, AreMet) {
  EXPECT_EQ(met()["set up"], 1);
  met()[testing::UnitTest::GetInstance()->current_test_info()->name()] = GetParam().number;
}

INSTANTIATE_TEST_SUITE_P(First, RowsOfTests, testing::Values(Row{1, "one"}, Row{2, "two"}),
                         [](const auto& info) { return info.param.word; });
INSTANTIATE_TEST_SUITE_P(Second, RowsOfTests, testing::Values(Row{3, "three"}));

class PairsOfTests : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(PairsOfTests, AreMet) { EXPECT_LT(std::get<0>(GetParam()), 2); }

INSTANTIATE_TEST_SUITE_P(All, PairsOfTests, testing::Combine(testing::Range(0, 2), testing::Bool()));

TEST(RowsOfTestsInAll, HaveNames) {
  std::vector<std::string> names;
  const auto& unit = *testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *unit.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string name = std::string(suite.name()) + "." + suite.GetTestInfo(t)->name();
      if (name.find("OfTests.") != std::string::npos) names.push_back(name);
    }
  }
  const std::vector<std::string> expected = {"First/RowsOfTests.AreMet/one", "First/RowsOfTests.AreMet/two",
                                             "Second/RowsOfTests.AreMet/0",  "All/PairsOfTests.AreMet/0",
                                             "All/PairsOfTests.AreMet/1",    "All/PairsOfTests.AreMet/2",
                                             "All/PairsOfTests.AreMet/3"};
  EXPECT_EQ(names, expected);
}

}  // namespace
}  // namespace tegula::rows

// The parser of command lines.
#include "tools/cli/cli.hpp"

#include <gtest/gtest.h>

#include "tegula/error.hpp"

namespace tegula::cli {
namespace {

struct Given {
  std::string place;
  int number = 3;
  double real = 0;
  bool flag = false;
  std::vector<std::string> several, parts{"usual"};
};

std::string refusal(const std::vector<std::string>& arguments, Given& given) {
  Command command("test", "Tests");
  command.add_option("place", given.place, "By its place")->required();
  command.add_option("--number", given.number, "A number")->check(Range(1, 9))->capture_default_str();
  command.add_option("--real", given.real, "Another");
  command.add_flag("--flag", given.flag, "A flag");
  command.add_option("--several", given.several, "Words");
  command.add_option("--parts", given.parts, "Parts")->delimiter(',')->check(IsMember({"a", "b"}));
  try {
    command.run(arguments);
    return "";
  } catch (const ArgumentError& error) { return error.what(); }
}

TEST(CommandLine, SetsVariables) {
  Given given;
  EXPECT_EQ(refusal({"here", "--several", "x=1", "y=2", "--number=4", "--flag", "--real", "-2.5", "--several",
                     "z", "--parts", "a,b"},
                    given),
            "");
  EXPECT_EQ(given.place, "here");
  EXPECT_EQ(given.number, 4);
  EXPECT_EQ(given.real, -2.5);
  EXPECT_TRUE(given.flag);
  EXPECT_EQ(given.several, (std::vector<std::string>{"x=1", "y=2", "z"}));
  EXPECT_EQ(given.parts, (std::vector<std::string>{"a", "b"}));
}

TEST(CommandLine, SaysWhatIsWrong) {
  const struct {
    std::vector<std::string> arguments;
    const char* words;
  } table[] = {
      {{}, "place is required"},
      {{"here", "there"}, "'there' was not expected"},
      {{"here", "--numbr", "3"}, "did you mean --number"},
      {{"here", "--number", "10"}, "--number: expected a number from 1 to 9, given '10'"},
      {{"here", "--number", "4x"}, "--number: expected a number from 1 to 9, given '4x'"},
      {{"here", "--real", "much"}, "--real: expected a number, given 'much'"},
      {{"here", "--real"}, "--real needs a value"},
      {{"here", "--number", "--flag"}, "--number needs a value"},
      {{"here", "--flag=yes"}, "--flag takes no value"},
      {{"here", "--parts", "a,c"}, "--parts: expected one of a, b, given 'c'"},
  };
  for (const auto& row : table) {
    Given given;
    const std::string says = refusal(row.arguments, given);
    EXPECT_NE(says.find(row.words), std::string::npos) << row.words << "\n" << says;
  }
}

}  // namespace
}  // namespace tegula::cli

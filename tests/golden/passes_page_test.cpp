// The page on passes: its programs, and what each pass makes of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "passes/cuda/cuda_passes.hpp"
#include "passes/passes.hpp"
#include "tegula/lang.hpp"
#include "tools/texts.hpp"

namespace golden {

extern bool update;

namespace {

using namespace tegula::lang;

struct Example {
  const char* name;
  bool in_scene;
  Kernel (*build)();
};

#include "passes_programs.inc"

using Differences = std::map<std::string, std::string>;  // by the pass

// What the passes for a target change, each without the empty lines around it.
Differences differences(const std::string& text) {
  Differences result;
  std::istringstream lines(text);
  std::string pass;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("---- ")) {
      const auto begin = line.find(". ") + 2;
      pass = line.substr(begin, line.find(':') - begin);
    } else if (!pass.empty()) {
      result[pass] += line + "\n";
    }
  }
  for (auto& [name, own] : result)
    while (own.ends_with("\n\n")) own.pop_back();
  return result;
}

// Those of `weighted`, or of `norm cpu`.
Differences differences_of(const std::string& words) {
  const bool cpu = words.ends_with(" cpu");
  const std::string name = words.substr(0, words.find(' '));
  for (const Example& example : examples)
    if (name == example.name)
      return differences(cpu ? tegula::tool::pass_differences(example.build())
                             : tegula::tool::pass_differences(example.build(), {90, true, true}));
  ADD_FAILURE() << "the page has no program " << name;
  return {};
}

// The page with the differences of today: below a heading `## pass`, in a block that begins with ```diff and
// the program's name.
std::string written_again(std::istream& page) {
  std::map<std::string, Differences> known;
  std::string result, pass;
  for (std::string line; std::getline(page, line);) {
    result += line + "\n";
    if (line.starts_with("## ")) pass = line.substr(3);
    if (!line.starts_with("```diff ")) continue;
    const std::string words = line.substr(8);
    if (!known.contains(words)) known[words] = differences_of(words);
    result += known[words][pass] + "```\n";
    while (std::getline(page, line) && line != "```") {
    }
  }
  return result;
}

TEST(PageOfPasses, ShowsWhatTheyDo) {
  std::ifstream file(TEGULA_PASSES_PAGE);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream page(text);
  const std::string now = written_again(page);
  if (update) {
    std::ofstream(TEGULA_PASSES_PAGE) << now;
    return;
  }
  EXPECT_TRUE(now == text) << "docs/passes.md has changed; accept it with test_golden --update";
}

// Every pass, in its order, with a program that it changes.
TEST(PageOfPasses, HasThemAll) {
  std::ifstream file(TEGULA_PASSES_PAGE);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::size_t before = 0;
  const auto expect = [&](std::string_view name) {
    const std::size_t place = text.find(fmt::format("\n## {}\n", name));
    ASSERT_NE(place, std::string::npos) << "the page has no part " << name;
    EXPECT_GT(place, before) << name << " is out of order";
    before = place;
    const std::size_t end = std::min(text.find("\n## ", place + 1), text.size());
    const std::string own = text.substr(place, end - place);
    EXPECT_NE(own.find("\n+"), std::string::npos) << "the program of " << name << " is not changed by it";
  };
  for (const auto& pass : tegula::passes::cuda_passes()) expect(pass.name);
  for (const auto& pass : tegula::passes::cpu_passes())
    EXPECT_NE(text.find(fmt::format("\n## {}\n", pass.name)), std::string::npos) << pass.name;
}

}  // namespace
}  // namespace golden

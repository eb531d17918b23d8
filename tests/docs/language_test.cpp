// The examples of docs/language.md: built, and run where they stand in its scene.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <vector>

#include "tegula/tegula.hpp"

namespace {

struct Example {
  const char* name;
  bool in_scene;
  tegula::lang::Kernel (*build)();
};

}  // namespace

#include "language_examples.inc"

namespace {

using tegula::Target;

class LanguagePage : public testing::TestWithParam<Example> {};

void run(const Kernel& kernel, Target target) {
  const auto function = tegula::compile(kernel, target);
  const std::int64_t m = 100;
  const auto a = tegula::Tensor::random_uniform({m, 64}, f32, 1, 0.5, 2), n = tegula::Tensor::arange(m, i32);
  const auto c = tegula::Tensor::zeros({m, 64}, f32), counts = tegula::Tensor::zeros({8}, i32);
  function(a, n, c, counts, 0.5f);
}

TEST_P(LanguagePage, IsRight) {
  const Kernel kernel = GetParam().build();
  EXPECT_FALSE(kernel.text().empty());
  if (!GetParam().in_scene) return;
  // All of them as one kernel, so that the compiler is called once.
  const bool all = std::string(GetParam().name) == "all";
  run(kernel, all ? Target::automatic() : Target::interpreter());
}

INSTANTIATE_TEST_SUITE_P(Examples, LanguagePage, testing::ValuesIn(examples),
                         [](auto& info) { return std::string(info.param.name); });

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The functions that a header declares for users.
std::set<std::string> functions_of(const std::string& header) {
  std::string text = std::regex_replace(
      contents(header), std::regex("namespace detail \\{[^]*?\n\\}  // namespace detail"), "");
  const std::regex declaration(
      "\n *(?:\\[\\[nodiscard\\]\\] )?(?:static )?(?:inline "
      ")?(?:Expr|void|Fragment|Shared|Tensor|Window|Kernel|When|Order|Range|Dim&|constexpr auto) "
      "([a-z_]\\w*)\\(");
  std::set<std::string> names;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), declaration); at != std::sregex_iterator();
       ++at)
    names.insert((*at)[1]);
  return names;
}

TEST(LanguagePage, ShowsEveryFunction) {
  const std::string code = contents(TEGULA_EXAMPLES);
  const std::set<std::string> internal{"fill_with",    "record",      "window",        "operator",
                                       "bool_literal", "int_literal", "float_literal", "literal_of"};
  std::size_t found = 0;
  for (auto* header : {"value", "place", "kernel", "control", "tile_ops"})
    for (auto& name : functions_of(std::string(TEGULA_SOURCE "/include/tegula/lang/") + header + ".hpp")) {
      if (internal.count(name)) continue;
      ++found;
      EXPECT_TRUE(std::regex_search(code, std::regex("\\b" + name + "\\("))) << name << " is in no example";
    }
  EXPECT_GT(found, 60U);
}

}  // namespace

// The texts that the compiler makes of a few programs, compared with those in this folder. A change of the
// compiler shows here as a change of text. After a look at it, `test_golden --update` accepts it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "show/diff.hpp"
#include "show/texts.hpp"
#include "tests/golden/kernels.hpp"
#include "tests/golden/shipped.hpp"

namespace golden {

bool update = false;

namespace {

using namespace tegula::shown;

constexpr struct {
  const char* name;
  Kernel (*build)();
} kernels[] = {{"vector_add", vector_add},
               {"row_softmax", row_softmax},
               {"gemm", gemm},
               {"attention", attention},
               {"block_sparse", block_sparse}};

constexpr struct {
  const char* ending;
  std::string (*text)(const Kernel& kernel);
} forms[] = {{"ir", [](const Kernel& kernel) { return kernel.text(); }},
             {"passes", [](const Kernel& kernel) { return pass_differences(kernel); }},
             {"cpp.txt", cpp_text}};

struct Golden {
  int kernel, form;
  std::string name() const { return std::string(kernels[kernel].name) + "." + forms[form].ending; }
  std::string path() const { return TEGULA_GOLDEN "/" + name(); }
  // Without places, so that a change of a program's lines is no change.
  std::string text() const { return without_places(forms[form].text(kernels[kernel].build())); }
};

std::vector<Golden> all() {
  std::vector<Golden> result;
  for (int kernel = 0; kernel < static_cast<int>(std::size(kernels)); ++kernel)
    for (int form = 0; form < static_cast<int>(std::size(forms)); ++form) result.push_back({kernel, form});
  return result;
}

class GoldenText : public testing::TestWithParam<Golden> {};

TEST_P(GoldenText, IsAsAccepted) {
  const Golden& golden = GetParam();
  const std::string now = golden.text();
  if (update) std::ofstream(golden.path()) << now;
  std::ifstream file(golden.path());
  ASSERT_TRUE(file) << golden.path() << " is missing; accept the text with test_golden --update";
  const std::string accepted{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(now == accepted) << golden.name() << " has changed; accept it with test_golden --update\n"
                               << diff(accepted, now);
}

// The same program gives the same text, whatever was built before it.
TEST_P(GoldenText, IsReproducible) { EXPECT_EQ(GetParam().text(), GetParam().text()); }

INSTANTIATE_TEST_SUITE_P(Kernels, GoldenText, testing::ValuesIn(all()), [](auto& info) {
  return std::string(kernels[info.param.kernel].name) + "_" +
         std::string(forms[info.param.form].ending).substr(0, 3);
});

// ---- all texts of the shipped kernels, of which the folder keeps digests

// FNV-1a by Fowler, Noll and Vo.
std::uint64_t digest(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

using Digests = std::map<std::string, std::string>;  // by the text's name

Digests accepted_digests(const std::string& path) {
  Digests result;
  std::ifstream file(path);
  for (std::string value, name; file >> value >> name;) result[name] = value;
  return result;
}

class ShippedTexts : public testing::TestWithParam<const tegula::ops::OperatorSchema*> {};

TEST_P(ShippedTexts, AreAsAccepted) {
  const std::vector<ShippedCall> calls = shipped_calls(*GetParam());
  ASSERT_FALSE(calls.empty()) << "the table of " << GetParam()->name << " has no calls to measure";
  const std::string path = TEGULA_GOLDEN "/" + GetParam()->name + ".digests";
  Digests now;
  for (const ShippedText& own : shipped_texts(calls))
    now[own.name] = fmt::format("{:016x}", digest(own.text));
  if (update) {
    std::ofstream file(path);
    for (const auto& [name, value] : now) file << value << ' ' << name << '\n';
  }
  const Digests accepted = accepted_digests(path);
  std::vector<std::string> changed;
  for (const auto& [name, value] : now) {
    const auto known = accepted.find(name);
    if (known == accepted.end() || known->second != value) changed.push_back(name);
  }
  for (const auto& [name, value] : accepted)
    if (!now.contains(name)) changed.push_back(name + " (gone)");
  EXPECT_TRUE(changed.empty()) << fmt::format("{}", fmt::join(changed, "\n"))
                               << "\nhave changed: look at them by scripts/compare-texts, accept them by "
                                  "test_golden --update";
}

INSTANTIATE_TEST_SUITE_P(Operators, ShippedTexts, testing::ValuesIn(tegula::ops::operator_schemas()),
                         [](auto& info) { return info.param->name; });

}  // namespace
}  // namespace golden

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  setenv("TEGULA_NUM_THREADS", "1", 1);  // plans of products depend on them
  golden::update = argc > 1 && std::strcmp(argv[1], "--update") == 0;
  return RUN_ALL_TESTS();
}

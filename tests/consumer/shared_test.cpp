// A shared library that holds a Tegula of its own, beside the one of this program; what Tegula's own shared
// library exports; and that its version is the same wherever it stands.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tegula/tegula.hpp"

namespace tegula {
namespace {

// The names that a shared library exports.
std::vector<std::string> exported(const std::string& library) {
  std::vector<std::string> names;
  FILE* lines = popen(("nm -DC --defined-only '" + library + "'").c_str(), "r");
  if (lines == nullptr) return names;
  char line[8192];
  while (std::fgets(line, sizeof line, lines) != nullptr) names.push_back(std::string(line).substr(19));
  EXPECT_EQ(pclose(lines), 0);
  return names;
}

TEST(SharedLibrary, ExportsNothingOfTegula) {
  bool has_product = false;
  for (auto& name : exported(SHARED_CONSUMER)) {
    has_product |= name == "product\n";
    EXPECT_EQ(name.find("tegula"), std::string::npos) << name;
  }
  EXPECT_TRUE(has_product);
}

TEST(SharedLibrary, RunsAndThrowsBesideAnotherTegula) {
  void* library = dlopen(SHARED_CONSUMER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* product = reinterpret_cast<float (*)(float, float, int)>(dlsym(library, "product"));
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product(2, 5, 3), 30);
  EXPECT_THROW(product(2, 5, 4), ArgumentError) << "its errors are caught by their types here";
  const Tensor a = Tensor::full({2, 3}, f32, 2), b = Tensor::full({3, 2}, f32, 5);
  EXPECT_EQ(ops::gemm(a, b).at<float>(1, 1), 30);
}

#ifdef SHARED_LIBRARY
// The public interface, and nothing that is internal.
TEST(SharedLibrary, ExportsThePublicInterface) {
  const std::vector<std::string> names = exported(SHARED_LIBRARY);
  for (const char* needed :
       {"tegula::compile(tegula::lang::Kernel const&, tegula::Target)", "tegula::ops::attention(",
        "tegula::lang::gemm(", "tegula::show[", "typeinfo for tegula::ArgumentError", "tegula::Tensor::to(",
        "tegula::version()"})
    EXPECT_TRUE(std::ranges::any_of(names, [&](auto& name) { return name.starts_with(needed); })) << needed;
  for (auto& name : names) {
    EXPECT_NE(name.find("tegula::"), std::string::npos) << name;
    for (const char* inner :
         {"tegula::passes", "tegula::codegen", "tegula::shown", "tegula::interp", "tegula::schedule"})
      EXPECT_NE(name.find(inner), 0u) << name;
  }
}

TEST(SharedLibrary, HasTheVersionInItsName) {
  const std::string name = std::filesystem::canonical(SHARED_LIBRARY).filename();
  EXPECT_EQ(name, "libtegula.so." TEGULA_VERSION_TEXT);
}
#endif

std::string contents(const std::string& name) {
  std::ifstream file(std::string(TEGULA_SOURCE "/") + name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(PublicHeaders, SayWhatIsExported) {
  for (auto& entry : std::filesystem::recursive_directory_iterator(TEGULA_SOURCE "/include/tegula")) {
    const std::string name = std::filesystem::relative(entry.path(), TEGULA_SOURCE);
    const std::string text = entry.is_regular_file() ? contents(name) : "";
    if (text.find("\nnamespace tegula") == std::string::npos) continue;
    EXPECT_NE(text.find("\nTEGULA_API_BEGIN\nnamespace"), std::string::npos)
        << name << ": write it before the namespace";
    EXPECT_NE(text.find("\nTEGULA_API_END\n"), std::string::npos)
        << name << ": write it behind the namespace";
  }
}

TEST(Version, IsTheSameEverywhere) {
  EXPECT_STREQ(version(), TEGULA_VERSION_TEXT);
  const std::string numbers = std::to_string(TEGULA_VERSION_MAJOR) + "." +
                              std::to_string(TEGULA_VERSION_MINOR) + "." +
                              std::to_string(TEGULA_VERSION_PATCH);
  EXPECT_EQ(numbers, TEGULA_VERSION_TEXT);
  EXPECT_NE(contents("pyproject.toml").find("\nversion = \"" + numbers + "\"\n"), std::string::npos);
  EXPECT_NE(contents("python/tegula/__init__.py").find("\n__version__ = \"" + numbers + "\"\n"),
            std::string::npos);
  EXPECT_NE(contents("CHANGELOG.md").find("\n## " + numbers), std::string::npos);
}

}  // namespace
}  // namespace tegula

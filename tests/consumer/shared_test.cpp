// A shared library that holds a Tegula of its own, beside the one of this program.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tegula/tegula.hpp"

namespace tegula {
namespace {

TEST(SharedLibrary, ExportsNothingOfTegula) {
  FILE* names = popen("nm -DC --defined-only '" TEGULA_SHARED "'", "r");
  ASSERT_NE(names, nullptr);
  char line[4096];
  bool has_product = false;
  while (std::fgets(line, sizeof line, names) != nullptr) {
    has_product |= std::string(line).find(" product") != std::string::npos;
    EXPECT_EQ(std::string(line).find("tegula"), std::string::npos) << line;
  }
  EXPECT_EQ(pclose(names), 0);
  EXPECT_TRUE(has_product);
}

TEST(SharedLibrary, RunsAndThrowsBesideAnotherTegula) {
  void* library = dlopen(TEGULA_SHARED, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* product = reinterpret_cast<float (*)(float, float, int)>(dlsym(library, "product"));
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product(2, 5, 3), 30);
  EXPECT_THROW(product(2, 5, 4), ArgumentError) << "its errors are caught by their types here";
  const Tensor a = Tensor::full({2, 3}, f32, 2), b = Tensor::full({3, 2}, f32, 5);
  EXPECT_EQ(ops::gemm(a, b).at<float>(1, 1), 30);
}

}  // namespace
}  // namespace tegula

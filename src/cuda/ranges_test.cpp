#include "cuda/ranges.hpp"

#include <gtest/gtest.h>

#include "runtime/execution/host_compiler.hpp"
#include "runtime/files/file_io.hpp"

namespace tegula::cuda {
namespace ranges_test {

// In place of NVIDIA's library: it keeps the names of the ranges that are open, and of all.
constexpr const char* library_text = R"text(
#include <string>
static std::string all;
extern "C" int nvtxRangePushA(const char* name) { all += std::string("(") + name; return 0; }
extern "C" int nvtxRangePop() { all += ")"; return 0; }
extern "C" const char* ranges_seen() { return all.c_str(); }
)text";

TEST(Ranges, AreOpenUntilTheEndOfTheScope) {
  const HostCompiler* compiler = host_compiler();
  if (!compiler) GTEST_SKIP() << "no C++ compiler was found on this machine";
  const TemporaryDirectory directory;
  const std::string path = directory.file("libnvToolsExt.so.1");
  compiler->compile({library_text, {"-w"}, {}}, path);
  const RangeFunctions functions = load_ranges({path});
  ASSERT_NE(functions.push, nullptr);
  {
    const Range outer("gemm", functions);
    const Range inner("softmax", functions);
  }
  { const Range next("gemm", functions); }
  auto* seen = reinterpret_cast<const char* (*)()>(functions.library->symbol("ranges_seen"));
  EXPECT_STREQ(seen(), "(gemm(softmax))(gemm)");
}

TEST(Ranges, AreNothingWithoutTheLibrary) {
  const RangeFunctions functions = load_ranges({"/nowhere/libnvToolsExt.so.1"});
  EXPECT_EQ(functions.push, nullptr);
  const Range range("gemm", functions);
}

}  // namespace ranges_test
}  // namespace tegula::cuda

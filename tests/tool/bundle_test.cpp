// Bundles of kernels compiled ahead of time, called from C: linked, and opened while a program runs.
#include "ops/registry.hpp"
#include "tests/tool/tool.hpp"

namespace tegula {
namespace {

class BundleTest : public Tool {
 protected:
  Outcome run(const std::string& command) const {
    const int status =
        std::system(("timeout 100 " + command + " >'" + file("out") + "' 2>'" + file("err") + "'").c_str());
    return {WEXITSTATUS(status), contents(file("out")), contents(file("err"))};
  }
};

TEST_F(BundleTest, IsLinkedAndOpenedByC) {
  const std::string examples = TEGULA_SOURCE "/examples/bundle/", bundle = file("bundle");
  const auto built = tool("build '" + examples + "kernels.cpp' --out '" + bundle + "' --name small");
  ASSERT_EQ(built.status, 0) << built.err;
  for (const char* name : {"small.h", "tegula_bundle.h", "libsmall.so", "small_avx2.o"})
    EXPECT_TRUE(std::filesystem::exists(bundle + "/" + name) && has(built.out, name)) << name;

  const std::string compile = "cc -std=c99 -pedantic -Wall -Wextra -Werror -I'" + bundle + "' ";
  ASSERT_EQ(run(compile + "'" + examples + "linked.c' -L'" + bundle + "' -lsmall -Wl,-rpath,'" + bundle +
                "' -o '" + file("linked") + "'")
                .err,
            "");
  const auto linked = run("env TEGULA_NUM_THREADS=2 '" + file("linked") + "'");
  EXPECT_EQ(linked.status, 0);
  EXPECT_EQ(linked.out,
            "kernel 'scaled_sum' requires: the factor is positive\n"
            "kernel 'scaled_sum', argument 'X': rank 2 is needed, 1 given\nright\n");
  ASSERT_EQ(run(compile + "'" + examples + "opened.c' -ldl -o '" + file("opened") + "'").err, "");
  EXPECT_EQ(run("'" + file("opened") + "' '" + bundle + "/libsmall.so'").out, "right\n");

  // Nothing but the functions of the header is exported, and neither Tegula nor CUDA is needed.
  const auto names = run("nm -D --defined-only --format=posix '" + bundle + "/libsmall.so'");
  EXPECT_TRUE(has(names.out, "small_product T") && has(names.out, "small_scaled_sum T") &&
              has(names.out, "small_error T"));
  EXPECT_EQ(std::count(names.out.begin(), names.out.end(), '\n'), 3) << names.out;
  const auto needed = run("readelf -d '" + bundle + "/libsmall.so'");
  for (const char* library : {"libtegula", "libcuda", "libnvrtc", "libfmt"})
    EXPECT_FALSE(has(needed.out, library)) << library;
}

TEST_F(BundleTest, IsRefusedWithTheRemedy) {
  struct {
    const char *arguments, *words;
  } table[] = {{"build gemm --out @ --name 'a b'", "cannot be the name of a bundle"},
               {"build gemm --out @ --target cuda,cuda_sm80", "choose cuda or cuda_sm80"},
               {"build gemm --out @ --target metal", "--target"},
               {"build gem --out @", "did you mean gemm"},
               {"build gemm", "--out"}};
  for (auto& row : table) {
    std::string arguments = row.arguments;
    if (const auto at = arguments.find('@'); at != std::string::npos)
      arguments.replace(at, 1, file("bundle"));
    const auto outcome = tool(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_TRUE(has(outcome.err, row.words)) << arguments << outcome.err;
  }
}

}  // namespace
}  // namespace tegula

// What TEGULA_DUMP writes down.
#include "passes/dump.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "passes/cuda/cuda_passes.hpp"
#include "runtime/files/file_io.hpp"
#include "tegula/error.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::passes {
namespace dump_test {

using namespace lang;
using lang::Tensor;

lang::Kernel product() {
  return kernel("product", [] {
    Tensor a = input("a", {64, 64}, bf16), b = input("b", {64, 64}, bf16),
           out = output("out", {64, 64}, bf16);
    grid(1, [&](Index) {
      Shared a_tile({64, 64}, bf16), b_tile({64, 64}, bf16);
      copy(a.at(0, 0), a_tile);
      copy(b.at(0, 0), b_tile);
      Fragment sum({64, 64}, f32, 0);
      gemm(a_tile, b_tile, sum);
      copy(sum, out.at(0, 0));
    });
  });
}

class Dump : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("TEGULA_DUMP"); }
};

TEST_F(Dump, HoldsEveryPassThatChangedTheKernel) {
  const TemporaryDirectory directory;
  ::setenv("TEGULA_DUMP", directory.path().c_str(), 1);
  for_cpu(*product().ir());
  plan_for_cuda(*product().ir(), {90});
  plan_for_cuda(*product().ir(), {80});
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(directory.path()))
    names.insert(file.path().filename().string());
  for (const char* name : {"product.cpu.3.merge_clears.ir", "product.sm_90.1.merge_clears.ir",
                           "product.sm_90.7.choose_threads.ir", "product.sm_90.15.choose_stores.ir",
                           "product.sm_90.29.infer_layouts.ir", "product.sm_80.9.lower_for_cuda.ir"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_FALSE(names.contains("product.sm_90.3.simplify.ir"));  // had nothing to do
}

TEST_F(Dump, HoldsTheNotesOfACompiledKernel) {
  const TemporaryDirectory directory;
  ::setenv("TEGULA_DUMP", directory.path().c_str(), 1);
  const tegula::Function function = compile(product(), tegula::Target::emulated_sm90());
  std::string text;
  for (const std::string& note : function.notes()) text += note + "\n";
  EXPECT_NE(text.find("dump_test.cpp:"), std::string::npos) << text;
  std::ifstream file(directory.path() + "/product.emulated_sm_90.notes");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
}

TEST_F(Dump, RefusesWhatIsNoDirectory) {
  ::setenv("TEGULA_DUMP", "/dev/null/nowhere", 1);
  EXPECT_THROW(plan_for_cuda(*product().ir(), {90}), ArgumentError);
}

TEST(CudaPasses, SayWhyTheyAreThere) {
  for (const CudaPass& pass : cuda_passes()) {
    EXPECT_FALSE(pass.name.empty());
    EXPECT_FALSE(pass.reason.empty()) << pass.name;
  }
}

}  // namespace dump_test
}  // namespace tegula::passes

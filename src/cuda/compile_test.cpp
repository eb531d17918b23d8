// Text to machine code, where NVRTC is found.
#include "cuda/compile.hpp"

#include <gtest/gtest.h>

#include <iostream>

#include "runtime/files/file_io.hpp"
#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda {
namespace compile_test {

const char* const text = R"(#include "scale.cuh"
extern "C" __global__ void __launch_bounds__(128) scale(float* x) { x[threadIdx.x] *= factor(); })";
const std::vector<Nvrtc::Header> headers{{"scale.cuh", "__device__ float factor() { return 2; }\n"}};

// Whether the test can run; says so if not.
bool has_nvrtc() {
  if (find_nvrtc()) return true;
  std::cout << "NVRTC was not found on this machine: nothing was compiled\n";
  return false;
}

TEST(CudaCompile, GivesMachineCodeAndKeepsIt) {
  if (!has_nvrtc()) return;
  const TemporaryDirectory directory;
  const KernelCache cache(directory.file("cache"), 1 << 30);
  for (const int architecture : {80, 90}) {
    const MachineCode first = compile_code(nvrtc(), text, headers, architecture, cache);
    EXPECT_EQ(first.cubin.substr(1, 3), "ELF");
    const std::uint64_t bytes = cache.bytes();
    const MachineCode again = compile_code(nvrtc(), text, headers, architecture, cache);
    EXPECT_EQ(again.cubin, first.cubin);
    EXPECT_EQ(again.log, first.log);
    EXPECT_EQ(cache.bytes(), bytes) << "the second time nothing is compiled";
    const std::vector<Resources> resources = read_resources(again.log);
    ASSERT_EQ(resources.size(), 1u) << again.log;
    EXPECT_EQ(resources[0].function, "scale");
    EXPECT_GT(resources[0].registers, 0);
    EXPECT_EQ(resources[0].stack_bytes + resources[0].spill_store_bytes, 0);
    EXPECT_EQ(read_remarks(again.log), std::vector<std::string>{});
  }
}

TEST(CudaCompile, TheCacheKnowsTextHeadersAndArchitecture) {
  if (!has_nvrtc()) return;
  const TemporaryDirectory directory;
  const KernelCache cache(directory.file("cache"), 1 << 30);
  std::vector<std::uint64_t> sizes{0};
  const auto compile = [&](const std::string& given, const std::vector<Nvrtc::Header>& with,
                           int architecture) {
    compile_code(nvrtc(), given, with, architecture, cache);
    sizes.push_back(cache.bytes());
    return sizes.back() > sizes[sizes.size() - 2];
  };
  EXPECT_TRUE(compile(text, headers, 80));
  EXPECT_TRUE(compile(text, headers, 90));
  EXPECT_TRUE(compile(text, {{"scale.cuh", "__device__ float factor() { return 3; }\n"}}, 80));
  EXPECT_TRUE(compile(std::string(text) + "\n__device__ int more;\n", headers, 80));
  EXPECT_FALSE(compile(std::string(text) + "  // user.cpp:41", headers, 80)) << "comments count for nothing";
  const ScopedVariable checks(Variable::cuda_checks, "1");
  EXPECT_TRUE(compile(text, headers, 80)) << "checked kernels are others";
}

TEST(CudaCompile, QuotesTheCompiler) {
  if (!has_nvrtc()) return;
  const TemporaryDirectory directory;
  const KernelCache cache(directory.file("cache"), 1 << 30);
  EXPECT_ERROR(DeviceError, "does not compile a kernel; with TEGULA_DUMP its text is kept",
               compile_code(nvrtc(), "__global__ void f() { wrong; }", {}, 80, cache));
  EXPECT_ERROR(DeviceError, "\"wrong\" is undefined",
               compile_code(nvrtc(), "__global__ void f() { wrong; }", {}, 80, cache));
  EXPECT_ERROR(DeviceError, "nvrtcCompileProgram", compile_code(nvrtc(), text, headers, 17, cache));
}

TEST(CudaCompile, ReadsTheAssemblersStatements) {
  const std::string log = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'attention' for 'sm_90a'
ptxas info    : Function properties for attention
    16 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
)";
  const std::vector<Resources> resources = read_resources(log);
  ASSERT_EQ(resources.size(), 1u);
  EXPECT_EQ(resources[0].function, "attention");
  EXPECT_EQ(resources[0].registers, 168);
  EXPECT_EQ(resources[0].stack_bytes, 16);
  EXPECT_EQ(resources[0].spill_store_bytes, 24);
  EXPECT_EQ(resources[0].spill_load_bytes, 28);
  EXPECT_EQ(resources[0].static_shared_bytes, 1024);
  const std::vector<std::string> remarks = read_remarks(log);
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("C7510"), std::string::npos);
}

}  // namespace
}  // namespace tegula::cuda

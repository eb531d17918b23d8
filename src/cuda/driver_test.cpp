// The driver where there is none, where it is too old, and where it fails; stand-ins are built by the host's
// compiler.
#include "cuda/driver.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "cuda/nvrtc.hpp"
#include "runtime/execution/host_compiler.hpp"
#include "runtime/files/file_io.hpp"
#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda {
namespace driver_test {

// A shared library with this text as its source.
std::string build(const TemporaryDirectory& directory, const std::string& name, const std::string& text) {
  const HostCompiler* compiler = host_compiler();
  if (!compiler) throw DeviceError("these tests need a C++ compiler");
  const std::string path = directory.file(name);
  compiler->compile({"extern \"C\" {\n" + text + "}\n", {}, {}}, path);
  return path;
}

std::string old_driver() { return "int cuDriverGetVersion(int* v) { *v = 11080; return 0; }\n"; }

TEST(CudaLibrary, SaysWhatIsMissing) {
  EXPECT_ERROR(DeviceError, "the CUDA driver was not found (/nowhere/libcuda.so.1",
               load_driver({"/nowhere/libcuda.so.1"}));
  EXPECT_ERROR(DeviceError, "545 or newer", load_driver({"/nowhere/libcuda.so.1"}));
  EXPECT_ERROR(DeviceError, "NVRTC, the compiler of CUDA, was not found",
               load_nvrtc({"/nowhere/libnvrtc.so"}));
  EXPECT_ERROR(DeviceError, "TEGULA_CUDA is 'none'", load_driver({}));
}

TEST(CudaLibrary, FunctionsThatAreMissingMeanAnOldOne) {
  const TemporaryDirectory directory;
  EXPECT_ERROR(DeviceError, "has no function cuInit: it is older than CUDA 12.3",
               load_driver({build(directory, "libcuda.so.1", old_driver())}));
  EXPECT_ERROR(DeviceError, "has no function nvrtcVersion",
               load_nvrtc({build(directory, "libnvrtc.so", old_driver())}));
}

TEST(CudaLibrary, FollowsTheVariable) {
  const TemporaryDirectory directory;
  const std::string path = build(directory, "libcuda.so.1", old_driver());
  const std::string names[] = {"libcuda.so.1"};
  {
    const ScopedVariable chosen(Variable::cuda, directory.path());
    ASSERT_FALSE(library_paths(names).empty());
    EXPECT_EQ(library_paths(names).front(), path);
  }
  const ScopedVariable none(Variable::cuda, "none");
  EXPECT_TRUE(library_paths(names).empty());
  EXPECT_TRUE(driver_paths().empty());
}

// A driver cannot load code of a newer major version than its own.
TEST(CudaLibrary, PrefersTheCompilerThatTheDriverUnderstands) {
  const ScopedVariable unset(Variable::cuda, std::nullopt);
  EXPECT_EQ(nvrtc_paths(12040).front(), "libnvrtc.so.12");
  EXPECT_EQ(nvrtc_paths(13000).front(), "libnvrtc.so.13");
  EXPECT_EQ(nvrtc_paths(0).front(), "libnvrtc.so.13");
}

TEST(CudaDriver, StartsOrSaysWhyNot) {
  if (!is_driver_usable()) {
    EXPECT_THROW(driver(), DeviceError);
    return;
  }
  EXPECT_GE(driver().version(), oldest_version);
  EXPECT_ERROR(DeviceError, "cuModuleLoadData failed with CUDA_ERROR_",
               driver().fail(209, "cuModuleLoadData"));
}

}  // namespace
}  // namespace tegula::cuda

// The program of docs/tensors.md.
#include <gtest/gtest.h>

#include "tegula/tegula.hpp"

#undef assert
#define assert(condition) EXPECT_TRUE(condition)
#include "tensors.inc"

namespace {

TEST(TensorsPage, RunsAsShown) {
  create_and_read();
  wrap_memory();
  for (const tegula::Target target : {tegula::Target::interpreter(), tegula::Target::cpu()})
    call_a_kernel(target);
}

TEST(TensorsPage, RunsOnAGpuAsShown) {
  if (tegula::cuda_device_count() == 0) GTEST_SKIP() << "this machine has no CUDA device";
  on_a_gpu();
}

}  // namespace

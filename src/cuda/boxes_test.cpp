// On a GPU: boxes that begin anywhere.
#include "codegen/testing/boxes.hpp"

#include "cuda/driver.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::cuda {
namespace boxes_test {

class CudaBoxes : public ::testing::TestWithParam<bool> {};

TEST_P(CudaBoxes, BeginAnywhere) {
  if (!is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Watchdog watchdog("boxes that begin anywhere", std::chrono::seconds(60));
  tegula::testing::expect_boxes_anywhere(GetParam(), Target::cuda(), Device::cuda());
}

INSTANTIATE_TEST_SUITE_P(Adds, CudaBoxes, ::testing::Bool());

}  // namespace
}  // namespace tegula::cuda

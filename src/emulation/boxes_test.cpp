// Boxes that begin anywhere: the copy engine moves those that begin at multiples of 16 bytes, threads the
// others.
#include "codegen/testing/boxes.hpp"

#include "codegen/cuda_program.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace boxes_test {

class Boxes : public ::testing::TestWithParam<bool> {};

TEST_P(Boxes, BeginAnywhere) {
  const Watchdog watchdog("boxes that begin anywhere", std::chrono::seconds(60));
  const std::string text =
      codegen::print_cuda(Signature(tegula::testing::boxes_from(GetParam()).ir()), {90}).text;
  for (const char* wanted :
       {"---- producer", "tg::load_box(", GetParam() ? "tg::add_box(" : "tg::store_box("})
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted;
  for (const Target target : {Target::emulated_sm90(), Target::emulated(), Target::cpu()})
    tegula::testing::expect_boxes_anywhere(GetParam(), target, Device::cpu());
}

INSTANTIATE_TEST_SUITE_P(Adds, Boxes, ::testing::Bool());

}  // namespace
}  // namespace tegula::emulation

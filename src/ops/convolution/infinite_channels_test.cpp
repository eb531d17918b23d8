// A channel that is infinite or NaN is seen by the results of its own group alone, also where several groups
// are multiplied as one.
#include "ops/decode/testing/call.hpp"

namespace tegula::ops {
namespace infinite_channels_test {

using decode_test::Call;

struct Row {
  std::string op, text, name;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.op << " " << row.text; }

// One channel of a pixel of an image, and another of one of the last image. Zeros around images are
// multiplied with gradients of pixels at their ends.
void plant(Tensor& x) {
  Shape first(x.shape().size(), 1), last(x.shape().size(), 3);
  first.front() = 0, first.back() = x.shape().back() / 2 + 1;
  last.front() = x.shape().front() - 1, last.back() = 2;
  x.set(first, INFINITY), x.set(last, NAN);
}

class InfiniteChannels : public testing::TestWithParam<Row> {};

TEST_P(InfiniteChannels, ReachTheirGroupAlone) {
  const Row& row = GetParam();
  Call call(row.op, row.text);
  plant(call.inputs.at(row.name));
  call.expect_right();
}

std::vector<Row> table() {
  const std::string image = "taps_h=3 taps_w=3 padding=1 bf16 ";
  return {{"conv2d", image + "batch=2 height=9 width=10 channels=32 features=32 groups=4", "x"},
          {"conv2d", image + "batch=3 height=7 width=7 channels=64 features=32 groups=4 bias", "x"},
          {"conv2d", image + "batch=2 height=8 width=10 channels=48 features=96 groups=6 stride=2", "x"},
          {"conv2d", image + "batch=2 height=9 width=11 channels=32 features=32 groups=4 stride=2", "x"},
          {"conv2d", image + "batch=2 height=9 width=8 channels=48 features=48 groups=4", "x"},
          {"conv2d_backward", image + "batch=2 height=9 width=10 channels=32 features=32 groups=4", "dout"},
          {"conv2d_backward", image + "batch=2 height=8 width=10 channels=48 features=96 groups=6 stride=2",
           "dout"},
          {"conv2d_backward", image + "batch=2 height=9 width=10 channels=32 features=32 groups=4", "x"},
          {"conv1d", "batch=2 width=300 taps_w=3 padding=1 channels=32 features=64 groups=2 f16", "x"}};
}

INSTANTIATE_TEST_SUITE_P(Table, InfiniteChannels, testing::ValuesIn(table()));

}  // namespace infinite_channels_test
}  // namespace tegula::ops

#include "ops/pieces/room.hpp"

#include <gtest/gtest.h>

#include "ops/schema/example.hpp"

namespace tegula::ops {
namespace {

TEST(RoomOfBlock, RowsAreHalvedUntilTheyFit) {
  const auto bytes_of = [](int rows) { return 1000 + 10 * rows; };
  EXPECT_EQ(fitting_rows(128, 2280, bytes_of), 128);
  EXPECT_EQ(fitting_rows(128, 2279, bytes_of), 64);
  EXPECT_EQ(fitting_rows(128, 1200, bytes_of), 16) << "no fewer";
}

struct RoomCase {
  const char *op, *call, *on_hopper, *on_sm80;
};

const RoomCase room_cases[] = {
    {"attention", "batch=1 queries=330 keys=700 kv_heads=1 group=2 d=576 d_v=512 bf16", "_k64", "_k32"},
    {"attention", "batch=1 queries=330 keys=700 kv_heads=1 group=2 d=128 d_v=128 bf16", "_k128", "_k128"},
    {"attention", "batch=1 queries=330 keys=700 kv_heads=1 group=2 d=576 d_v=512 bf16 tile_keys=48", "_k48",
     "_k48"},
    {"sparse_mla_backward", "queries=8 keys=200 kv_heads=1 group=64 d=512 d_v=512 bf16 entries=128", "_k64",
     "_k16"},
    {"sparse_mla_backward", "queries=8 keys=200 kv_heads=1 group=64 d=352 d_v=320 bf16 entries=128", "_k64",
     "_k64"},
};

// Blocks of 8.0 have less shared memory, in which steps of wide features are shorter.
TEST(RoomOfBlock, OfSm80HasFewerKeysOfWideFeatures) {
  for (const RoomCase& c : room_cases) {
    const OperatorSchema& schema = find_schema(c.op);
    const ExampleCall call = ExampleCall::parse(schema, c.call);
    const auto has_kernel = [&](Target target, const std::string& words) {
      const ListedCall listed = listed_by_name(schema, call.described(schema), call.options, target);
      return std::ranges::any_of(listed.kernels, [&](const lang::Kernel& kernel) {
        return (kernel.name() + "_").find(words + "_") != std::string::npos;
      });
    };
    EXPECT_TRUE(has_kernel(Target::cuda(), c.on_hopper)) << c.call;
    EXPECT_TRUE(has_kernel(Target::cuda_sm80(), c.on_sm80)) << c.call;
  }
}

}  // namespace
}  // namespace tegula::ops

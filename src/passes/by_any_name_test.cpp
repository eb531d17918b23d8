// Tensors and all that may be in the same memory.
#include "passes/by_any_name.hpp"

#include <gtest/gtest.h>

#include "tegula/lang.hpp"

namespace tegula::passes {
namespace by_any_name_test {

TEST(ByAnyName, FollowsChainsInBothDirections) {
  const auto written = lang::kernel("names", [] {
                         const lang::Dim n("n");
                         const lang::Tensor a = lang::input("a", {n}, f32), b = lang::input("b", {n}, f32),
                                            c = lang::input("c", {n}, f32);
                         lang::input("apart", {n}, f32);
                         const lang::Tensor out = lang::output("out", {n}, f32);
                         lang::may_alias(b, a), lang::may_alias(c, b);
                         lang::grid(1, [&](lang::Index) {
                           lang::Fragment tile = lang::load(a.at(0), {8});
                           lang::copy(tile, out.at(0));
                         });
                       }).ir();
  const auto tensor = [&](std::size_t i) { return written->parameters[i].tensor.get(); };
  for (const std::size_t first : {0, 1, 2})
    EXPECT_EQ(by_any_name({tensor(first)}, *written), (Tensors{tensor(0), tensor(1), tensor(2)})) << first;
  EXPECT_EQ(by_any_name({tensor(3)}, *written), Tensors{tensor(3)});
  EXPECT_EQ(by_any_name({}, *written), Tensors{});
}

}  // namespace by_any_name_test
}  // namespace tegula::passes

// The order in which the blocks of a grid begin: every block once, as the grid asks.
#include "runtime/execution/block_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tegula/lang.hpp"

namespace tegula {
namespace {

using lang::Expr, lang::Index, lang::Order;

// The blocks of a grid [N, M, 2] in the order in which they begin; `scale` is a scalar of the cost.
std::vector<BlockIndex> begun(const Order& order, std::int64_t n, std::int64_t m, int scale = 1) {
  const lang::Kernel kernel = lang::kernel("ordered", [&] {
    lang::Dim N("N"), M("M");
    lang::Tensor Y = lang::output("Y", {N, M}, i32);
    Expr factor = lang::scalar("scale", i32);
    Order with_scalar = order;
    if (order.cost)
      with_scalar.cost = [&](const std::vector<Index>& i) -> Expr { return order.cost(i) * factor; };
    lang::grid(N, M, 2, {.order = with_scalar}, [&](Index x, Index y, Index) { Y(x, y) = 0; });
  });
  const Signature signature(kernel.ir());
  const std::vector<Argument> args{Tensor::zeros({n, m}, i32), scale};
  const Binding binding = signature.bind(std::span(args));
  const BlockOrder blocks(kernel.ir()->grids[0], signature);
  const auto extents = blocks.extents(binding);
  const auto kept = blocks.order(binding);
  EXPECT_EQ(kept, blocks.order(binding)) << "the order of the call before is kept";
  std::vector<BlockIndex> result;
  for (std::int64_t i = 0; i < extents[0] * extents[1] * extents[2]; ++i) {
    result.push_back(blocks.index(kept ? (*kept)[static_cast<std::size_t>(i)] : i, extents));
  }
  return result;
}

const Order orders[] = {{},
                        Order::row(),
                        Order::column(),
                        Order::grouped(1),
                        Order::grouped(3),
                        Order::grouped(100),
                        Order::heavy_first([](Index x, Index y, Index z) { return x * 7 % 5 + y - z; }),
                        Order::heavy_first([](Index x, Index, Index) { return x; }, 2)};

TEST(BlockOrder, RunsEveryBlockOnce) {
  for (const Order& order : orders) {
    for (const auto& [n, m] :
         {std::pair(1, 1), std::pair(4, 7), std::pair(7, 4), std::pair(0, 3), std::pair(3, 0)}) {
      const auto blocks = begun(order, n, m);
      EXPECT_EQ(blocks.size(), static_cast<std::size_t>(2 * n * m));
      EXPECT_EQ(std::set<BlockIndex>(blocks.begin(), blocks.end()).size(), blocks.size());
      for (const BlockIndex& at : blocks) EXPECT_TRUE(at[0] < n && at[1] < m && at[2] < 2);
    }
  }
}

TEST(BlockOrder, FollowsTheHint) {
  using Blocks = std::vector<BlockIndex>;
  const auto first = [](const Order& order) {
    Blocks blocks = begun(order, 2, 3);
    blocks.resize(6);
    return blocks;
  };
  EXPECT_EQ(first(Order::row()), (Blocks{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {0, 2, 0}, {1, 2, 0}}));
  EXPECT_EQ(first(Order::column()),
            (Blocks{{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {1, 0, 0}, {1, 1, 0}, {1, 2, 0}}));
  EXPECT_EQ(first(Order::grouped(2)),
            (Blocks{{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}, {0, 2, 0}, {1, 2, 0}}));
}

TEST(BlockOrder, CostlyBlocksBeginFirst) {
  const Order by_cost = Order::heavy_first([](Index x, Index y, Index z) { return x * 3 - y * y + z; });
  for (const int scale : {1, -2}) {
    const auto blocks = begun(by_cost, 5, 4, scale);
    const auto cost = [&](const BlockIndex& at) { return scale * (at[0] * 3 - at[1] * at[1] + at[2]); };
    EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end(),
                               [&](const BlockIndex& a, const BlockIndex& b) { return cost(a) > cost(b); }));
  }
}

}  // namespace
}  // namespace tegula

// Which way a block with roles stores what it has multiplied.
#include "passes/cuda/choose_stores.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace choose_stores_test {

using namespace lang;

struct WayCase {
  const char* name;
  int rows, columns, stages;
  DType type;
  std::vector<bool> ways;  // that fit shared memory: by the copy engine or not
  bool by_engine;          // the one that is taken
};

void PrintTo(const WayCase& c, std::ostream* out) { *out << c.name; }

lang::Kernel product(const WayCase& c) {
  return kernel("product", [&] {
    Dim M("M"), N("N"), K("K");
    Tensor a = input("a", {M, K}, bf16), b = input("b", {N, K}, bf16), out = output("out", {M, N}, c.type);
    grid(ceildiv(M, c.rows), ceildiv(N, c.columns), {.threads = c.rows * 2}, [&](Index y, Index x) {
      Fragment sum({c.rows, c.columns}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = c.stages}, [&](Index k) {
        Shared left({c.rows, 64}, bf16), right({c.columns, 64}, bf16);
        copy(a.at(y * c.rows, k * 64), left);
        copy(b.at(x * c.columns, k * 64), right);
        gemm(left, right.T(), sum);
      });
      copy(sum, out.at(y * c.rows, x * c.columns));
    });
  });
}

class Ways : public ::testing::TestWithParam<WayCase> {};

TEST_P(Ways, ToStore) {
  const WayCase& c = GetParam();
  const CudaPlan found = plan_before(*product(c).ir(), {90}, "choose_stores");
  std::vector<bool> ways;
  for (const Roles& way : found.grids[0].ways) ways.push_back(way.stores());
  EXPECT_EQ(ways, c.ways);
  const CudaPlan chosen = plan_before(*product(c).ir(), {90}, "pair_blocks");
  ASSERT_TRUE(chosen.grids[0].roles);
  EXPECT_EQ(chosen.grids[0].roles->stores(), c.by_engine);
  // The program says what the consumers do.
  const auto copies = testing::all_of<ir::Copy>(chosen.kernel.grids[0].body);
  const auto stores = std::count_if(copies.begin(), copies.end(), [](const ir::Copy* n) {
    return n->from.buffer->space == ir::Space::fragment;
  });
  EXPECT_EQ(stores, c.by_engine ? 1 : 0);
  EXPECT_TRUE(chosen.grids[0].ways.empty());
}

const WayCase way_cases[] = {
    {"room_for_both", 128, 128, 4, bf16, {true, false}, true},
    {"buffers_take_a_slot_that_is_asked_for", 128, 256, 6, bf16, {true, false}, true},
    {"threads_store_no_whole_rows", 128, 256, 6, f32, {true, false}, true},
};

INSTANTIATE_TEST_SUITE_P(Table, Ways, ::testing::ValuesIn(way_cases),
                         [](auto& info) { return std::string(info.param.name); });

enum class Dealt { no, steps, parts };

// What is chosen of both ways of a product where the threads' one is dealt so.
bool is_by_engine(const WayCase& c, Dealt dealt) {
  const CudaTarget target{90};
  std::vector<Roles> ways = plan_before(*product(c).ir(), target, "deal_steps").grids[0].ways;
  EXPECT_EQ(ways.size(), 2u);
  if (dealt != Dealt::no) ways.back().dealt.emplace().of_parts = dealt == Dealt::parts;
  return best_way_to_store(ways, target).stores();
}

TEST(Ways, OfDealtWorkAreByThreads) {
  const WayCase room{"", 128, 128, 4, bf16, {}, true};
  EXPECT_TRUE(is_by_engine(room, Dealt::no));
  EXPECT_FALSE(is_by_engine(room, Dealt::parts));
}

// Parts are, whatever they store; steps where that is by whole rows.
TEST(Ways, OfDealtStepsAreByThreadsIfTheseStoreWholeRows) {
  const WayCase no_rows{"", 128, 256, 4, f32, {}, true};
  EXPECT_TRUE(is_by_engine(no_rows, Dealt::steps));
  EXPECT_FALSE(is_by_engine(no_rows, Dealt::parts));
}

TEST(Ways, ThreadsStoreWithoutRoles) {
  const WayCase c{"plain", 128, 128, 4, bf16, {}, false};
  for (const CudaTarget& target : {CudaTarget{80}, CudaTarget{90, false}}) {
    const CudaPlan plan = plan_for_cuda(*product(c).ir(), target);
    for (const ir::Copy* n : testing::all_of<ir::Copy>(plan.computing(0)))
      EXPECT_NE(n->from.buffer->space, ir::Space::fragment);
  }
}

}  // namespace choose_stores_test
}  // namespace tegula::passes

// Tiles that the consumers compute and the producer reads to know what to load next.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "emulation/testing/compared.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "runtime/testing/watchdog.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::emulation {
namespace told_tiles_test {

using namespace lang;
using lang::Tensor;

constexpr int rows = 90, dim = 64, numbers = 16, steps = 5;

struct Block {
  const Tensor &table, &list;
  Expr number;
  const Shared &queries, &told;
  Fragment& sum;
};

struct Way {
  const char* name;
  std::function<void(const Block&, Shared&)> tell;
  std::function<void(const Block&)> loads;
  int blocks = 1;
  bool uneven = false;
};

void use(const Block& b, const Shared& tile, const Expr& more) {
  gemm(b.queries, tile.T(), b.sum);
  parallel(b.sum, [&](Index i, Index c) { b.sum(i, c) += f32(more); });
}

// From registers, which the producer does not have.
void tell_all(const Block& b, Shared& told) {
  Fragment own({numbers}, i32);
  parallel(own, [&](Index i) { own(i) = b.list(b.number * 3 + i); });
  parallel(own, [&](Index i) { told(i) = own(i); });
}
// A loop over other elements writes some of them again.
void tell_twice(const Block& b, Shared& told) {
  tell_all(b, told);
  parallel(numbers / 2, [&](Index i) { told(2 * i) = b.list(i) / 2; });
}
// An iteration writes its element again.
void tell_again(const Block& b, Shared& told) {
  Fragment own({numbers}, i32);
  parallel(own, [&](Index i) { own(i) = b.list(b.number * 3 + i); });
  parallel(own, [&](Index i) {
    told(i) = b.list(i);
    told(i) = own(i);
  });
}
// From a tensor, which the producer reads, too.
void tell_by_tensor(const Block& b, Shared& told) {
  parallel(numbers, [&](Index i) {
    told(i) = b.list(i);
    told(i) = b.list(b.number * 3 + i);
  });
}
// From a tile that only the consumers have: the loop itself has no fragments.
void tell_from_tile(const Block& b, Shared& told) {
  Fragment own({numbers}, i32);
  Shared list({numbers}, i32);
  parallel(own, [&](Index i) { own(i) = b.list(b.number * 3 + i); });
  copy(own, list);
  parallel(numbers, [&](Index i) { told(i) = list(numbers - 1 - i); });
}

void load_steps(const Block& b, const Expr& count, bool by_both) {
  pipelined(count, {.stages = 2}, [&](Index j) {
    Shared tile({64, dim}, bf16);
    copy(b.table.at(b.told(j), 0), tile);
    use(b, tile, by_both ? Expr(b.told(j + 1)) : Expr(j));
  });
}

const std::vector<Way> ways{
    {"place_of_a_copy", tell_all, [](const Block& b) { load_steps(b, steps, false); }},
    {"read_by_both", tell_all, [](const Block& b) { load_steps(b, steps, true); }},
    {"told_by_two_loops", tell_twice, [](const Block& b) { load_steps(b, steps, true); }, 3},
    {"told_from_a_tile", tell_from_tile, [](const Block& b) { load_steps(b, steps, false); }, 3},
    {"told_again_by_a_loop", tell_again, [](const Block& b) { load_steps(b, b.told(1) % 4, true); }, 3},
    {"bound_of_the_loop", tell_all, [](const Block& b) { load_steps(b, b.told(1) % 4, true); }, 4},
    {"rows_of_a_gather", tell_all,
     [](const Block& b) {
       pipelined(steps, {.stages = 2}, [&](Index j) {
         Shared tile({64, dim}, bf16);
         gather(
             b.table, [&](Index i) -> Expr { return b.told((i + j) % numbers); }, tile);
         use(b, tile, j);
       });
     },
     3},
    {"behind_another_loop", tell_all,
     [](const Block& b) {
       pipelined(3, {.stages = 2}, [&](Index j) {
         Shared tile({64, dim}, bf16);
         copy(b.table.at(j, 0), tile);
         use(b, tile, j);
       });
       load_steps(b, steps, true);
     },
     5},
    {"blocks_from_a_counter", tell_all, [](const Block& b) { load_steps(b, b.number % 3, true); }, 5, true},
};

Kernel program_of(const Way& way) {
  return kernel("told_tiles", [&] {
    Dim height("height"), length("length");
    Tensor table = input("table", {height, dim}, bf16), list = input("list", {length}, i32),
           q = input("q", {64, dim}, bf16), out = output("out", {64 * way.blocks, 64}, f32);
    GridOptions options;
    if (way.uneven) options.order = Order::heavy_first([](Expr x) -> Expr { return x; });
    grid(way.blocks, options, [&](Index b) {
      Shared queries({64, dim}, bf16), told({numbers}, i32);
      copy(q.at(0, 0), queries);
      Fragment sum({64, 64}, f32, 0);
      const Block block{table, list, b, queries, told, sum};
      way.tell(block, told);
      way.loads(block);
      copy(sum, out.at(b * 64, 0));
    });
  });
}

void expect_right(const Way& way) {
  const lang::Kernel program = program_of(way);
  text_with_roles(program);
  expect_as_interpreted(program,
                        {tegula::Tensor::random_normal({rows, dim}, bf16, 1),
                         tegula::Tensor::random_integers({40}, i32, 3, 0, 26),
                         tegula::Tensor::random_normal({64, dim}, bf16, 2)},
                        {64 * way.blocks, 64}, 1e-2,
                        {tegula::Target::emulated_sm90(), tegula::Target::cpu()});
}

class ToldTiles : public ::testing::TestWithParam<Way> {};

TEST_P(ToldTiles, AreReadWhenAllOfThemIsThere) {
  const Watchdog watchdog("told tiles", std::chrono::seconds(60));
  expect_right(GetParam());
}

// Of what stands for such a tile in the schedule, nothing can be left out.
TEST_P(ToldTiles, NeedAllTheirEvents) {
  const passes::CudaPlan plan = passes::plan_for_cuda(*program_of(GetParam()).ir(), {});
  ASSERT_TRUE(plan.grids[0].schedule);
  const schedule::Schedule& schedule = *plan.grids[0].schedule;
  const std::string ring = plan.grids[0].roles->rings.back().tiles[0]->name;
  EXPECT_FALSE(schedule::verify(schedule, schedule::thorough)) << schedule::print(schedule);
  int changed = 0;
  for (const schedule::Mutation& m : schedule::mutations(schedule)) {
    const bool of_tile = m.name.ends_with(ring + ", removed") || m.name.find(ring + " ") != std::string::npos;
    if (!of_tile || !m.name.ends_with("removed")) continue;
    ++changed;
    EXPECT_TRUE(schedule::verify(m.schedule)) << m.name << "\n" << schedule::print(schedule);
  }
  EXPECT_GE(changed, 4);
}

// Nobody tells what the producer can read itself: it has a tile of its own.
TEST(TilesOfBothRoles, AreMadeByEach) {
  const Watchdog watchdog("tiles of both roles", std::chrono::seconds(60));
  const Way way{"made_by_each", tell_by_tensor, [](const Block& b) { load_steps(b, b.told(1) % 4, true); },
                3};
  const passes::CudaPlan plan = passes::plan_for_cuda(*program_of(way).ir(), {});
  ASSERT_TRUE(plan.grids[0].roles);
  for (const auto& ring : plan.grids[0].roles->rings) EXPECT_FALSE(ring.told);
  expect_right(way);
}

TEST(ToldTilesText, IsAccepted) {
  const codegen::testing::Nvrtc* nvrtc = codegen::testing::Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << "NVRTC was not found";
  for (const Way& way : ways) {
    const codegen::testing::Compiled compiled = nvrtc->compile(text_with_roles(program_of(way)), 90);
    ASSERT_TRUE(compiled.ok) << way.name << compiled.log;
    EXPECT_EQ(compiled.log.find("C75"), std::string::npos) << way.name << compiled.log;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ToldTiles, ::testing::ValuesIn(ways),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace told_tiles_test
}  // namespace tegula::emulation

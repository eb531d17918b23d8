// Loops after one another that load their tiles into the same slots, where there is no memory for slots of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "emulation/testing/compared.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "runtime/testing/watchdog.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::emulation {
namespace loops_in_turn_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 64;
constexpr schedule::Thoroughness all_counts{216, true};

// A loop multiplies tiles with so many columns; one of them may come in two boxes.
struct Steps {
  int k;
  bool in_two_boxes = false;
};

struct Loops {
  const char* name;
  std::vector<Steps> loops;
  std::vector<int> depths;  // of the rings
  bool around = false;      // a loop runs all of them twice
  bool inside = false;      // the second loop is in a step of the first one
  bool reads = false;       // threads read tiles, too
};

void PrintTo(const Loops& c, std::ostream* out) { *out << c.name; }

struct Block {
  const lang::Tensor &x, &y;
  lang::Fragment& sum;
  lang::Fragment& extra;
};

void add(const Loops& c, std::size_t number, const lang::Expr& steps, const Block& of) {
  using namespace lang;
  if (number == c.loops.size()) return;
  const Steps own = c.loops[number];
  pipelined(steps, {.stages = 4}, [&](Index i) {
    Shared left({rows, own.k}, bf16), right({rows, own.k}, bf16);
    copy(of.x.at(0, i * own.k), left);
    const int boxes = own.in_two_boxes ? 2 : 1, height = rows / boxes;
    for (int box = 0; box < boxes; ++box)
      copy(of.y.at(box * height, i * own.k), right.slice(range(box * height, (box + 1) * height)));
    gemm(left, right.T(), of.sum);
    if (c.reads) parallel(of.extra, [&](Index r) { of.extra(r) += f32(left(r, 0)); });
    if (c.inside) add(c, number + 1, 2, of);
  });
  if (!c.inside) add(c, number + 1, steps, of);
}

lang::Kernel program(const Loops& c) {
  using namespace lang;
  return kernel("loops_in_turn", [&] {
    Dim n("n");
    lang::Tensor x = input("x", {rows, n}, bf16), y = input("y", {rows, n}, bf16),
                 out = output("out", {rows, rows}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Fragment sum({rows, rows}, f32, 0), extra({rows}, f32, 0);
      const auto all = [&] { add(c, 0, ceildiv(n, 64), {x, y, sum, extra}); };
      if (c.around)
        serial(2, [&](Index) { all(); });
      else
        all();
      parallel(sum, [&](Index r, Index j) { out(r, j) = sum(r, j) + extra(r); });
    });
  });
}

class LoopsInTurn : public ::testing::TestWithParam<Loops> {};

TEST_P(LoopsInTurn, HaveTheSlotsTheyAskFor) {
  const passes::CudaPlan plan = passes::plan_for_cuda(*program(GetParam()).ir(), {});
  ASSERT_TRUE(plan.grids[0].roles) << plan.grids[0].no_roles.why;
  std::vector<int> depths;
  for (const passes::RingPlan& ring : plan.grids[0].roles->rings) depths.push_back(ring.depth);
  EXPECT_EQ(depths, GetParam().depths);
}

// That a slot is free, and that threads have read it before the copy engine writes there, is in the schedule.
TEST_P(LoopsInTurn, WaitForEachOther) {
  const passes::CudaPlan plan = passes::plan_for_cuda(*program(GetParam()).ir(), {});
  ASSERT_TRUE(plan.grids[0].schedule);
  const schedule::Schedule& own = *plan.grids[0].schedule;
  EXPECT_FALSE(schedule::verify(own)) << schedule::print(own);
  std::vector<std::string> harmless;
  for (const schedule::Mutation& m : schedule::mutations(own)) {
    // Fences of products and meetings of warps have tests of their own.
    const auto is_of = [&](const char* words) { return m.name.find(words) != std::string::npos; };
    const bool guards_slots = is_of("wait full") || is_of("wait empty") || is_of("release") || is_of("proxy fence");
    if (guards_slots && !schedule::verify(m.schedule, all_counts)) harmless.push_back(m.name);
  }
  EXPECT_TRUE(harmless.empty()) << fmt::format("{}\n", fmt::join(harmless, "\n")) << schedule::print(own);
}

TEST_P(LoopsInTurn, GiveTheSame) {
  const Watchdog watchdog("loops in turn", most_time);
  const lang::Kernel kernel = program(GetParam());
  for (const int n : {0, 64, 328})
    expect_as_interpreted(kernel,
                          {Tensor::random_integers({rows, n}, bf16, 1, -2, 2),
                           Tensor::random_integers({rows, n}, bf16, 2, -2, 2)},
                          {rows, rows}, 0);
}

const Loops all_loops[] = {
    {"equal", {{64}, {64}}, {4}},
    {"smaller", {{128}, {64}}, {3}},
    {"larger", {{64}, {128}}, {3}},
    {"three", {{128}, {64}, {128}}, {3}},
    {"three_with_room", {{64}, {128}, {32}}, {4, 4, 4}},
    {"in_a_loop", {{64}, {128}}, {3}, true},
    {"read_by_threads", {{128}, {64}}, {3, 3}, false, false, true},
    {"in_more_boxes", {{64, true}, {64}}, {3, 3}},
    {"in_a_step", {{64}, {64}}, {3, 3}, false, true},
};

INSTANTIATE_TEST_SUITE_P(Table, LoopsInTurn, ::testing::ValuesIn(all_loops),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace loops_in_turn_test
}  // namespace tegula::emulation

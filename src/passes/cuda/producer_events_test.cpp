// Copies of parts of a tile, as events: which warp of the producer begins them, that the schedules are clean,
// and that what orders them is needed.
#include <gtest/gtest.h>

#include <algorithm>

#include "passes/cuda/testing/plans.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace producer_events_test {

using namespace lang;

struct PartsCase {
  const char* name;
  int parts;     // of a tile
  bool clipped;  // by threads where the tensor ends, so that the producer has more than one thread
  std::vector<int> warps;
};

void PrintTo(const PartsCase& c, std::ostream* out) { *out << c.name; }

// A product of tiles whose rows come from pages that a list names.
Kernel product(const PartsCase& c) {
  return kernel("product", [&] {
    Dim K("K"), pages("pages");
    Expr length = scalar("length", i32);
    const int rows = 128 / c.parts;
    Tensor x = input("x", {64, 64}, bf16), y = input("y", {pages, rows, 64}, bf16),
           list = input("list", {K}, i32), out = output("out", {64, 128}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared a({64, 64}, bf16);
      copy(x.at(0, 0), a);
      Fragment sum({64, 128}, f32, 0);
      pipelined(ceildiv(K, c.parts), {.stages = 2}, [&](Index k) {
        Shared b({128, 64}, bf16);
        for (int part = 0; part < c.parts; ++part) {
          Shared own = b.slice(range(part * rows, (part + 1) * rows), all);
          Expr page = list(k * c.parts + part);
          if (c.clipped)
            copy(y.slice(page, range(0, clamp(length - (k * c.parts + part) * rows, 0, rows))).at(0, 0), own);
          else
            copy(y.slice(page, all).at(0, 0), own);
        }
        gemm(a, b.T(), sum);
      });
      parallel(sum, [&](Index i, Index j) { out(i, j) = sum(i, j); });
    });
  });
}

schedule::Schedule schedule_of(const PartsCase& c) {
  return *testing::Lowered(product(c)).plan.grids[0].schedule;
}

// Those of loads of the tile, in the order of events.
void find_warps(const schedule::Events& events, std::vector<int>& warps) {
  for (const schedule::Event& e : events) {
    if (const auto* load = std::get_if<schedule::Load>(&e.what); load && load->bytes < 128 * 64 * 2)
      warps.push_back(e.warp);
    if (const auto* loop = std::get_if<schedule::Loop>(&e.what)) find_warps(loop->body, warps);
    if (const auto* guard = std::get_if<schedule::Guard>(&e.what)) find_warps(guard->body, warps);
  }
}

const PartsCase cases[] = {
    {"two_parts", 2, true, {0, 0, 0}},
    {"four_parts", 4, true, {0, 0, 1, 2, 3}},
    {"eight_parts", 8, true, {0, 0, 1, 2, 3, 0, 1, 2, 3}},
    {"one_thread_loads", 4, false, {0, 0, 0, 0, 0}},
};

class PartsOfTiles : public ::testing::TestWithParam<PartsCase> {};

TEST_P(PartsOfTiles, AreBegunByWarpsInTurn) {
  const schedule::Schedule s = schedule_of(GetParam());
  std::vector<int> warps;
  for (const schedule::Role& role : s.roles) find_warps(role.events, warps);
  EXPECT_EQ(warps, GetParam().warps) << schedule::print(s);
}

TEST_P(PartsOfTiles, AreSimulated) {
  const auto found = schedule::verify(schedule_of(GetParam()), schedule::thorough);
  EXPECT_FALSE(found) << found->message;
}

// Each warp awaits the slot itself, and the bytes that are expected are those of all warps.
TEST(PartsOfTilesByWarps, AreNotToBeChanged) {
  const schedule::Schedule s = schedule_of(cases[1]);
  int changes = 0;
  for (const auto& all : {schedule::mutations(s), schedule::moves(s)})
    for (const schedule::Mutation& m : all) {
      const bool of_slot = m.name.rfind("producer", 0) == 0 &&
                           (m.name.find("wait empty s1") != m.name.npos ||
                            m.name.find("expect") != m.name.npos || m.name.find(": load") != m.name.npos);
      if (!of_slot) continue;
      ++changes;
      EXPECT_TRUE(schedule::verify(m.schedule)) << m.name << "\n" << schedule::print(s);
    }
  EXPECT_GT(changes, 8);
}

INSTANTIATE_TEST_SUITE_P(Table, PartsOfTiles, ::testing::ValuesIn(cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace producer_events_test
}  // namespace tegula::passes

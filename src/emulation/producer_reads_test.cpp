// What the producer reads itself has arrived, and each of its waits is needed.
#include "emulation/testing/producer_reads.hpp"

#include <gtest/gtest.h>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "emulation/testing/compared.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "passes/cuda/order_loads.hpp"
#include "passes/cuda/specialize_roles.hpp"
#include "runtime/testing/watchdog.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::emulation {
namespace producer_reads_test {

using producer_reads::all_reads, producer_reads::Reads, producer_reads::program_of;
using producer_reads::dim, producer_reads::entries, producer_reads::listed, producer_reads::rows;

constexpr std::chrono::seconds most_time{60};
struct Case {
  Reads reads;
  bool both;
};
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Reads& reads : all_reads)
    for (const bool both : {false, true}) result.push_back({reads, both});
  return result;
}

class ProducerReads : public ::testing::TestWithParam<Case> {};

TEST_P(ProducerReads, WhatHasArrived) {
  const Watchdog watchdog("producer reads", most_time);
  const Case& c = GetParam();
  const lang::Kernel program = program_of(c.reads, c.both);
  std::vector<Target> targets{Target::emulated_sm90()};
  if (c.both) targets.push_back(Target::cpu());
  expect_as_interpreted(
      program,
      {Tensor::random_normal({rows, dim}, bf16, 1), Tensor::random_integers({entries}, i32, 3, 0, rows),
       Tensor::random_integers({entries / 4, 4}, i32, 4, 0, rows), Tensor::random_normal({64, dim}, bf16, 2)},
      {64 * c.reads.blocks, listed}, 1e-2, targets);
}

// Blocks have roles, and none of the waits of the producer can be left out.
TEST_P(ProducerReads, NothingBeforeItIsThere) {
  const Case& c = GetParam();
  const passes::CudaTarget target{};
  const passes::CudaPlan plan = passes::plan_for_cuda(*program_of(c.reads, c.both).ir(), target);
  ASSERT_TRUE(plan.grids[0].schedule);
  const schedule::Schedule& schedule = *plan.grids[0].schedule;
  int waits = 0;
  for (const schedule::Mutation& m : schedule::mutations(schedule)) {
    if (m.name.find("producer") != 0 || m.name.find("wait full") == std::string::npos) continue;
    ++waits;
    EXPECT_TRUE(schedule::verify(m.schedule)) << m.name << "\n" << schedule::print(schedule);
  }
  using Waits = Reads::Waits;
  EXPECT_EQ(waits > 0, c.reads.waits == Waits::always || (c.both && c.reads.waits == Waits::if_both))
      << schedule::print(schedule);
}

// A tile that threads of the producer make and consumers read: racecheck follows an arrival of one thread
// for many to none of the others' accesses, and reports each such tile. Where they meet before it, there is
// no race; where they do not, there is one.
TEST(ProducerFills, ThreadsMeetBeforeOneOfThemArrives) {
  const auto by_loop = std::find_if(all_reads.begin(), all_reads.end(), [](const Reads& x) {
    return x.name == std::string_view("list_by_loop");
  });
  ASSERT_NE(by_loop, all_reads.end());
  const passes::CudaPlan plan = passes::plan_for_cuda(*program_of(*by_loop, true).ir(), passes::CudaTarget{});
  ASSERT_TRUE(plan.grids[0].schedule);
  const schedule::Schedule& schedule = *plan.grids[0].schedule;
  EXPECT_FALSE(schedule::verify(schedule, schedule::thorough));
  const auto needed = [&](const std::string& role, const std::string& event) {
    int count = 0;
    for (const schedule::Mutation& m : schedule::mutations(schedule)) {
      if (m.name.starts_with(role) && m.name.find(": " + event) != std::string::npos &&
          m.name.ends_with(", removed"))
        count += schedule::verify(m.schedule).has_value();
    }
    return count;
  };
  EXPECT_EQ(needed("producer", "barrier"), 1) << "behind the writes\n" << schedule::print(schedule);
  EXPECT_EQ(needed("consumer", "warp sync"), 1) << "behind the reads\n" << schedule::print(schedule);
}

TEST(ProducerReadsText, IsAccepted) {
  const codegen::testing::Nvrtc* nvrtc = codegen::testing::Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << "NVRTC was not found";
  for (const Reads& reads : all_reads) {
    const std::string name = reads.name;
    if (name != "list_by_copy" && name != "list_by_gather" && name != "list_in_a_view" &&
        name != "converted_tile")
      continue;
    const codegen::testing::Compiled compiled = nvrtc->compile(text_with_roles(program_of(reads, true)), 90);
    ASSERT_TRUE(compiled.ok) << name << compiled.log;
    EXPECT_EQ(compiled.log.find("C75"), std::string::npos) << name << compiled.log;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ProducerReads, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.reads.name) + (info.param.both ? "_by_both" : "");
});

}  // namespace producer_reads_test
}  // namespace tegula::emulation

#include <gtest/gtest.h>

#include "schedule/examples/examples.hpp"
#include "schedule/verify.hpp"

namespace tegula::schedule::examples {
namespace {

struct Gemm128x256 {
  GemmShape shape;
  Builder b{"gemm"};
  int a = 0, bt = 0, acc = 0, c = 0, ring = 0;
  Count k_steps = {};

  void declare() {
    const int depth = shape.stages;
    a = b.buffer({"A", Space::shared, depth, 1, 128 * 64 * 2, 2});
    bt = b.buffer({"B", Space::shared, depth, 1, 256 * 64 * 2, shape.cluster});
    acc = b.buffer({"acc", Space::registers});
    c = b.buffer({"C", Space::shared, shape.stores, 2, 64 * 64 * 2, 4});
    ring = b.ring({"AB", {a, bt}, depth, 1, 1, 8 * shape.cluster});
    k_steps = b.variable({"k_steps", 1});
  }

  void prologue() {
    b.emit(InitBarriers{}, Who::one);
    b.emit(InitFence{}, Who::one);
    if (shape.cluster > 1)
      b.emit(ClusterBarrier{});
    else
      b.emit(Barrier{0, false, 0, 384, true});
  }

  void producer() {
    b.emit(SetRegisters{40});
    b.only(Who::one, [&] { load_all(); });
  }

  void load_all() {
    b.tiles([&] {
      b.loop("k", k_steps, [&] {
        b.emit(Acquire{{ring}}, Who::one);
        b.emit(Expect{{ring}, (128 + 256) * 64 * 2}, Who::one);
        b.emit(Load{{ring}, write(a, at_cursor(ring)), 128 * 64 * 2}, Who::one);
        const Parts half = {1, 0, 0, 1};
        b.emit(Load{{ring},
                    write(bt, at_cursor(ring), {}, half),
                    256 / shape.cluster * 64 * 2,
                    shape.cluster > 1},
               Who::one);
        b.emit(Advance{ring});
      });
    });
  }

  void release() { b.emit(Arrive{Side::empty, {ring, -1}, shape.cluster > 1}, Who::each_warp); }

  void consumer() {
    b.emit(SetRegisters{232});
    b.tiles([&] {
      b.loop("k", k_steps, [&] {
        b.emit(WaitFull{{ring}});
        b.gemm("A B", {read(a, at_cursor(ring), {}, {1, 1}), read(bt, at_cursor(ring)), update(acc)});
        b.emit(GemmWait{1});
        b.guard(Guard::Kind::not_first, "", [&] { release(); });
        b.emit(Advance{ring});
      });
      b.emit(GemmWait{0});
      release();
      for (int step = 0; step < shape.steps; ++step) {
        const Slot slot = at(step % shape.stores);
        b.emit(StoreWait{shape.stores - 1}, Who::leader);
        b.emit(Barrier{1, true, 0, 128, true});
        b.operation("stage acc", {read(acc), write(c, slot, own(), {1, 0, 1})});
        b.emit(ProxyFence{});
        b.emit(Barrier{1, true, 0, 128, true});
        b.emit(Store{read(c, slot, own()), {}}, Who::leader);
        b.emit(StoreCommit{}, Who::leader);
      }
    });
    b.emit(StoreWait{0}, Who::leader);
    if (shape.cluster > 1) b.emit(ClusterBarrier{});
  }

  Schedule make() {
    b.schedule().launch_registers = 168;
    b.schedule().cluster = shape.cluster;
    declare();
    b.prologue([&] { prologue(); });
    b.role({"consumer", 2, 4, 232, {}}, [&] { consumer(); });
    b.role({"producer", 1, 4, 40, {}}, [&] { producer(); });
    return b.take();
  }
};

}  // namespace

Schedule gemm(const GemmShape& shape) { return Gemm128x256{shape}.make(); }

TEST(GemmSchedule, IsClean) {
  for (const int cluster : {1, 2}) {
    const auto found = verify(gemm({cluster}), thorough);
    EXPECT_FALSE(found) << found->message << print(gemm({cluster}));
  }
}

// Their combinations would not fit into any memory.
TEST(GemmSchedule, ManyLoopsTakeNoLonger) {
  Schedule schedule = gemm({1});
  for (int i = 0; i < 40; ++i) schedule.variables.push_back({.name = "loop" + std::to_string(i)});
  EXPECT_FALSE(verify(schedule));
}

// Warps of a group would wait for those that do not say so.
TEST(GemmSchedule, WarpsOfAGroupHaveTheSameRegisters) {
  Schedule schedule = gemm({1});
  Role rest{"rest", 1, 3, 0, {}};
  schedule.roles.back().warps = 1;
  schedule.roles.push_back(rest);
  const auto found = verify(schedule);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rule, Rule::resources) << found->message;
}

// A tile would begin in a buffer that the tile before is still being stored from.
TEST(GemmSchedule, StoresDivideATile) {
  const auto found = verify(gemm({1, 3, 3, 4}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rule, Rule::order) << found->message;
}

}  // namespace tegula::schedule::examples

// The fuzzer finds what it is there to find.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "codegen/cuda_program.hpp"
#include "fuzz/edit.hpp"
#include "fuzz/run.hpp"
#include "ir/print.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/cuda_passes.hpp"

namespace {

using namespace tegula;
using namespace tegula::fuzz;

Executor reference() {
  return interpreter("interpreter", [](const ir::Kernel& kernel) { return kernel; });
}

RunOptions options(int count) {
  RunOptions result;
  result.count = count;
  result.most_failures = 1;
  return result;
}

ir::Kernel map_stmts(const ir::Kernel& kernel, const std::function<ir::Body(const ir::Stmt&)>& f) {
  return ir::map_grids(kernel, [&](const ir::Grid& grid) { return ir::map_body(grid.body, f); });
}

// A pass that takes loops to run once at least.
ir::Kernel run_once_at_least(const ir::Kernel& kernel) {
  return map_stmts(kernel, [](const ir::Stmt& stmt) -> ir::Body {
    const auto* loop = ir::as<ir::For>(stmt);
    if (loop == nullptr || loop->kind != ir::LoopKind::serial) return {stmt};
    ir::For wrong = *loop;
    const DType type = loop->begin[0]->held();
    const ir::Expr one = ir::make(ir::Op::add, type, {loop->begin[0], ir::constant(type, 1)});
    wrong.end[0] = ir::make(ir::Op::max, type, {loop->end[0], one});
    return {ir::statement(wrong, stmt->at)};
  });
}

// A pass that forgets that a remainder of a negative number is not negative.
ir::Kernel truncate_remainders(const ir::Kernel& kernel) {
  return ir::map_grids(kernel, [](const ir::Grid& grid) {
    return ir::map_exprs(grid.body, [](const ir::Expr& e) {
      return ir::rewrite(e, [](const ir::Expr& node) {
        return node->op == ir::Op::floormod ? ir::make(ir::Op::mod, node->type, node->args) : node;
      });
    });
  });
}

// A pass that drops what a copy reads outside of a tensor.
ir::Kernel forget_fills(const ir::Kernel& kernel) {
  return map_stmts(kernel, [](const ir::Stmt& stmt) -> ir::Body {
    const auto* copy = ir::as<ir::Copy>(stmt);
    if (copy == nullptr) return {stmt};
    ir::Copy wrong = *copy;
    wrong.fill = nullptr;
    return {ir::statement(wrong, stmt->at)};
  });
}

struct Planted {
  const char* name;
  ir::Kernel (*pass)(const ir::Kernel&);
  const char* shown;  // in the reduced program
  int statements;     // that the reduced program has at most
};

class FindsPlanted : public testing::TestWithParam<Planted> {};

TEST_P(FindsPlanted, AndReducesIt) {
  const Executor executors[] = {reference(), interpreter("wrong", GetParam().pass)};
  const auto begin = std::chrono::steady_clock::now();
  const Summary summary = run(options(4000), executors);
  const auto time = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(time, std::chrono::seconds(80)) << "no step is left before the patience of the reducer ends";
  ASSERT_EQ(summary.failures.size(), 1u);
  const Report& report = summary.failures[0];
  EXPECT_EQ(report.failure.executor, "wrong") << report.failure.message;
  EXPECT_LE(report.statements, GetParam().statements) << report.program;
  EXPECT_NE(report.program.find(GetParam().shown), std::string::npos) << report.program;
}

INSTANTIATE_TEST_SUITE_P(Fuzz, FindsPlanted,
                         testing::Values(Planted{"loops", run_once_at_least, "serial", 7},
                                         Planted{"remainders", truncate_remainders, "floormod", 6},
                                         Planted{"fills", forget_fills, "fill", 8}),
                         [](const auto& info) { return info.param.name; });

TEST(Fuzz, ProgramsAreValid) {
  const Summary summary = run(options(400), std::span(&executors()[0], 2));
  EXPECT_EQ(summary.programs, 400);
  EXPECT_LE(summary.discarded, 80) << summary.text();
  EXPECT_TRUE(summary.failures.empty()) << summary.text();
}

// A store rounds what is computed, and leaves alone what is of its type already.
TEST(Fuzz, AStoreRoundsOnce) {
  for (const DType type : {bf16, f16, e4m3, e5m2}) {
    const Nature place = inexact(type), computed = inexact(f32), chosen = join(place, computed, f32);
    EXPECT_TRUE(fits(place, place, type)) << type.name();
    EXPECT_TRUE(fits(chosen, place, type)) << type.name();
    EXPECT_TRUE(fits(join(computed, place, f32), place, type)) << type.name();
    EXPECT_TRUE(fits(join(chosen, {}, f32), place, type)) << type.name();
    EXPECT_TRUE(fits(stored(chosen, f32), place, type)) << type.name();
    EXPECT_FALSE(fits(place, {}, type)) << type.name();
    for (const DType other : {bf16, f16, e4m3, e5m2}) {
      if (other == type) continue;
      const double error = inexact(other).worst_error();
      EXPECT_GT(stored(inexact(other), type).worst_error(), error);
      EXPECT_GT(stored(join(place, inexact(other), f32), type).worst_error(), error);
    }
  }
}

TEST(Fuzz, ASeedIsOneProgram) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed)
    EXPECT_EQ(fuzz::print(generate(seed)), fuzz::print(generate(seed))) << seed;
  EXPECT_NE(fuzz::print(generate(1)), fuzz::print(generate(2)));
}

// None of a program that GPUs do not take.
passes::CudaPlan plan_of(const Program& program) {
  try {
    return passes::plan_for_cuda(*program.kernel, {90});
  } catch (const Error&) { return {}; }
}

// Many programs that look tiles up have a producer on Hopper, and some of these wait for what it reads;
// others have tiles that its warps transpose or widen.
TEST(Fuzz, ProducersReadAndTransposeTiles) {
  constexpr std::uint64_t first = 1'000'000'000, count = 80;
  int producers = 0, readers = 0, transposers = 0, wideners = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = generate(seed);
    if (plan_of(program).grids.empty()) continue;
    const std::string text = codegen::print_cuda(Signature(program.kernel), {90}).text;
    const std::size_t producer = text.find("// ---- producer");
    if (producer == std::string::npos) continue;
    ++producers;
    const std::size_t transposer = text.find("// ---- transposer", producer);
    transposers += transposer != std::string::npos;
    wideners += text.find("tg::widen_bytes<") != std::string::npos;
    readers += text.find("tg::wait_full(", producer) < transposer;
  }
  EXPECT_GE(producers, 20);
  EXPECT_GE(readers, 8);
  EXPECT_GE(transposers, 3);
  EXPECT_GE(wideners, 2);
}

// The most sums that one step of a loop adds.
int sums_of_step(const ir::Kernel& kernel) {
  int most = 0;
  ir::for_each_stmt(kernel, [&](const ir::Stmt& stmt) {
    const auto* loop = ir::as<ir::For>(stmt);
    if (loop == nullptr || loop->kind != ir::LoopKind::pipelined) return;
    int own = 0;
    ir::for_each_stmt(loop->body, [&](const ir::Stmt& s) { own += ir::as<ir::Accumulate>(s) != nullptr; });
    most = std::max(most, own);
  });
  return most;
}

// Some pass tiles from step to step, which consumers relay, and some add several sums in a step.
TEST(Fuzz, ConsumersRelayTilesAndAddSums) {
  constexpr std::uint64_t first = 1'000'000'000, count = 120;
  int relays = 0, of_several = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = generate(seed);
    for (const auto& grid : plan_of(program).grids) {
      if (!grid.roles) continue;
      const auto& rings = grid.roles->rings;
      relays += std::any_of(rings.begin(), rings.end(), [](const auto& ring) { return ring.relayed; });
      of_several += sums_of_step(*program.kernel) > 1;
    }
  }
  EXPECT_GE(relays, 6);
  EXPECT_GE(of_several, 6);
}

TEST(Fuzz, ACrashIsAFailure) {
  const Executor crashing{"crashing", [](std::span<const Program> programs) -> std::vector<Outcome> {
                            if (programs.size() < 100) raise(SIGKILL);
                            return {};
                          }};
  const Executor executors[] = {reference(), crashing};
  RunOptions few = options(3);
  few.shrink = false;
  const Summary summary = run(few, executors);
  ASSERT_EQ(summary.failures.size(), 1u);
  EXPECT_NE(summary.failures[0].failure.message.find("signal 9"), std::string::npos);
}

TEST(Fuzz, AnEndlessRunIsAFailure) {
  const Executor endless{"endless", [](std::span<const Program>) -> std::vector<Outcome> {
                           for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
                         }};
  const Executor executors[] = {reference(), endless};
  RunOptions few = options(2);
  few.shrink = false;
  few.timeout = few.program_timeout = std::chrono::seconds(1);
  const Summary summary = run(few, executors);
  ASSERT_EQ(summary.failures.size(), 1u);
  EXPECT_NE(summary.failures[0].failure.message.find("time-out"), std::string::npos);
}

}  // namespace

// The schedules of small blocks, event by event.
#include "passes/cuda/build_schedule.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "passes/cuda/order_loads.hpp"
#include "passes/cuda/testing/plans.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace build_schedule_test {

using namespace lang;

// The events of a role as `schedule::print` words them, one a line, without places.
std::string events_of(const schedule::Schedule& s, const std::string& role) {
  std::string text;
  bool inside = false;
  std::istringstream lines(schedule::print(s));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (line[0] != ' ') {
      inside = line.rfind(role + ",", 0) == 0;
      continue;
    }
    if (!inside) continue;
    line.resize(std::min(line.size(), line.find("  // ")));
    text += line.substr(2) + "\n";
  }
  return text;
}

struct ScheduleCase {
  const char* name;
  Kernel (*kernel)();
  const char *consumer, *producer;
};

void PrintTo(const ScheduleCase& c, std::ostream* out) { *out << c.name; }

class Schedules : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(Schedules, AreThese) {
  const ScheduleCase& c = GetParam();
  const testing::Lowered lowered(c.kernel());
  const auto roles = lowered.roles();
  ASSERT_TRUE(roles);
  const ConsumerProgram shaped = delay_products(*roles, lowered.target);
  const schedule::Schedule s =
      build_schedule(c.name, order_loads(*roles, shaped), shaped, step_parts(*roles, shaped, lowered.target));
  EXPECT_NO_THROW(schedule::check(s));
  EXPECT_EQ(events_of(s, "consumer"), c.consumer + 1);
  EXPECT_EQ(events_of(s, "producer"), c.producer + 1);
}

Kernel product(int stages, bool looked_up) {
  return kernel("product", [&] {
    Dim K("K"), N("N");
    Tensor x = input("x", {64, K}, bf16), y = input("y", {N, 64}, bf16), rows = input("rows", {K}, i32),
           out = output("out", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Fragment sum({64, 64}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = stages}, [&](Index k) {
        Shared a({64, 64}, bf16), b({64, 64}, bf16);
        copy(x.at(0, k * 64), a);
        if (looked_up)
          gather(
              y, [&](Index i) { return rows(k * 64 + i); }, b);
        else
          copy(y.at(k * 64), b);
        gemm(a, b, sum);
      });
      parallel(sum, [&](Index i, Index j) { out(i, j) = sum(i, j); });
    });
  });
}

Kernel two_products() {
  return kernel("two_products", [&] {
    Dim N("N");
    Tensor q = input("q", {64, 64}, bf16), x = input("x", {N, 64}, bf16), y = input("y", {N, 64}, bf16),
           out = output("out", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared query({64, 64}, bf16);
      copy(q.at(0, 0), query);
      Fragment sum({64, 64}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index j) {
        Shared a({64, 64}, bf16), b({64, 64}, bf16);
        copy(x.at(j * 64), a);
        copy(y.at(j * 64), b);
        Fragment s({64, 64}, f32, 0), p({64, 64}, bf16);
        gemm(query, a.T(), s);
        parallel(s, [&](Index i, Index c) { p(i, c) = s(i, c) * 2; });
        gemm(p, b, sum);
      });
      parallel(sum, [&](Index i, Index j) { out(i, j) = sum(i, j); });
    });
  });
}

const ScheduleCase schedule_cases[] = {
    {"product", [] { return product(3, false); }, R"(
registers 208
loop over this CTA's tiles
  declare f0 f32[64, 64]
  fill: writes f0
  if i0 has a step
    loop i0: 1 + steps of i0 times
      wait full s0[n]
      gemm fence
      gemm: reads s0[s0], reads s1[s0], updates f0
      gemm commit
      gemm wait 1
      if not the first step
        release s0[n-1] by one thread a warp
      advance s0
    gemm wait 0
    release s0[n-1] by one thread a warp
  store to out: reads f0
)",
     R"(
registers 48
only by one thread
  loop over this CTA's tiles
    loop i0: i0 has a step + i0 has a step * steps of i0 times
      wait empty s0[n] by one thread
      expect 16384 bytes in s0[n] by one thread
      load s0[s0], 8192 bytes on s0[n] by one thread
      load s1[s0], 8192 bytes on s0[n] by one thread
      advance s0
)"},
    {"product_with_one_stage", [] { return product(1, false); }, R"(
registers 208
loop over this CTA's tiles
  declare f0 f32[64, 64]
  fill: writes f0
  loop i0: steps of i0 times
    wait full s0
    gemm fence
    gemm: reads s0, reads s1, updates f0
    gemm commit
    gemm wait 0
    warp sync
    release s0 by one thread a warp
    advance s0
  store to out: reads f0
)",
     R"(
registers 48
only by one thread
  loop over this CTA's tiles
    loop i0: steps of i0 times
      wait empty s0 by one thread
      expect 16384 bytes in s0 by one thread
      load s0, 8192 bytes on s0 by one thread
      load s1, 8192 bytes on s0 by one thread
      advance s0
)"},
    {"product_of_looked_up_rows", [] { return product(2, true); }, R"(
registers 200
loop over this CTA's tiles
  declare f0 f32[64, 64]
  fill: writes f0
  if i0 has a step
    loop i0: 1 + steps of i0 times
      wait full s0[n]
      wait full s1[n]
      proxy fence
      gemm fence
      gemm: reads s0[s0], reads s1[s1], updates f0
      gemm commit
      gemm wait 1
      if not the first step
        release s0[n-1] by one thread a warp
        release s1[n-1] by one thread a warp
      advance s0
      advance s1
    gemm wait 0
    release s0[n-1] by one thread a warp
    release s1[n-1] by one thread a warp
  store to out: reads f0
)",
     R"(
registers 56
loop over this CTA's tiles
  loop i0: i0 has a step + i0 has a step * steps of i0 times
    wait empty s0[n]
    barrier 15, 128 threads
    expect 8192 bytes in s0[n] by one thread
    load s0[s0], 8192 bytes on s0[n] by one thread
    wait empty s1[n]
    copy async s1[s1]
    copies fill s1[n]
    advance s0
    advance s1
)"},
    {"two_products", two_products, R"(
registers 208
loop over this CTA's tiles
  declare f0 f32[64, 64]
  fill: writes f0
  declare f2 bf16[64, 64]
  wait full s0[n]
  if i0 has a step
    declare f1 f32[64, 64]
    wait full s1[n]
    gemm fence
    gemm: reads s0[s0], reads s1[s1], writes f1
    gemm commit
    gemm wait 0
    warp sync
    release s1[n] by one thread a warp
    advance s1
    elementwise mul: reads f1, writes f2
    loop i0: steps of i0 times
      declare f1 f32[64, 64]
      wait full s1[n]
      gemm fence
      gemm: reads s0[s0], reads s1[s1], writes f1
      gemm commit
      wait full s2[n]
      gemm fence
      gemm: reads f2, reads s2[s2], updates f0
      gemm commit
      gemm wait 0
      warp sync
      release s1[n] by one thread a warp
      advance s1
      warp sync
      release s2[n] by one thread a warp
      advance s2
      elementwise mul: reads f1, writes f2
  warp sync
  release s0[n] by one thread a warp
  advance s0
  if i0 has a step
    wait full s2[n]
    gemm fence
    gemm: reads f2, reads s2[s2], updates f0
    gemm commit
    gemm wait 0
    warp sync
    release s2[n] by one thread a warp
    advance s2
  store to out: reads f0
)",
     R"(
registers 48
only by one thread
  loop over this CTA's tiles
    wait empty s0[n] by one thread
    expect 8192 bytes in s0[n] by one thread
    load s0[s0], 8192 bytes on s0[n] by one thread
    loop i0: i0 has a step + i0 has a step * steps of i0 times
      wait empty s1[n] by one thread
      expect 8192 bytes in s1[n] by one thread
      load s1[s1], 8192 bytes on s1[n] by one thread
      wait empty s2[n] by one thread
      expect 8192 bytes in s2[n] by one thread
      load s2[s2], 8192 bytes on s2[n] by one thread
      advance s1
      advance s2
    advance s0
)"},
};

INSTANTIATE_TEST_SUITE_P(Table, Schedules, ::testing::ValuesIn(schedule_cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace build_schedule_test
}  // namespace tegula::passes

// Slots that ordinary instructions read: a fence in front of their release, unless a product has taken what
// was made of the values; and the simulation finds where it is missing.
#include "passes/cuda/read_fences.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"
#include "schedule/build.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace {

using namespace lang;

enum class Use : std::uint8_t { scales_sum, weighs_operand, by_products_only };

struct ReadCase {
  const char* name;
  Use use;
  int fences;
  bool is_needed = false;  // no other ring that the producer awaits tells that the values have arrived
};

void PrintTo(const ReadCase& c, std::ostream* out) { *out << c.name; }

// Steps of a product with a vector that comes beside its operands.
Kernel program(const ReadCase& c) {
  return kernel("program", [&] {
    Dim K("K"), B("B");
    Tensor x = input("x", {B, 64, K}, bf16), y = input("y", {64, K}, bf16), s = input("s", {K, 64}, f32),
           out = output("out", {B, 64, 64}, f32);
    grid(B, {.threads = 128}, [&](Index b) {
      Fragment sum({64, 64}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = 2}, [&](Index k) {
        Shared p({64, 64}, bf16), q({64, 64}, bf16), scale({64}, f32);
        copy(x.slice(b).at(0, k * 64), p);
        copy(y.at(0, k * 64), q);
        copy(s.slice(k).at(0), scale);
        if (c.use == Use::by_products_only) return gemm(p, q.T(), sum);
        Fragment part({64, 64}, f32, 0);
        gemm(p, q.T(), part);
        parallel(part, [&](Index i, Index j) { part(i, j) = part(i, j) * scale(j); });
        if (c.use == Use::scales_sum)
          return parallel(sum, [&](Index i, Index j) { sum(i, j) += part(i, j); });
        gemm(part.to(bf16), q, sum);
      });
      copy(sum, out.slice(b).at(0, 0));
    });
  });
}

// Whether that event is a fence in front of a release.
bool is_fence(const schedule::Events& events, std::size_t i) {
  const auto* fence = std::get_if<schedule::ProxyFence>(&events[i].what);
  return fence && !fence->global && i + 2 < events.size() &&
         std::holds_alternative<schedule::Arrive>(events[i + 2].what);
}

int fences_in(const schedule::Events& events) {
  int count = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (const auto* loop = std::get_if<schedule::Loop>(&events[i].what)) count += fences_in(loop->body);
    count += is_fence(events, i);
  }
  return count;
}

void remove_fences(schedule::Events& events) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (auto* loop = std::get_if<schedule::Loop>(&events[i].what)) remove_fences(loop->body);
    if (is_fence(events, i)) events.erase(events.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

class ReadFencesOf : public ::testing::TestWithParam<ReadCase> {};

TEST_P(ReadFencesOf, StandInFrontOfReleases) {
  schedule::Schedule own = *testing::Lowered(program(GetParam())).plan.grids[0].schedule;
  EXPECT_EQ(fences_in(own.roles[0].events), GetParam().fences) << print(own);
  EXPECT_FALSE(schedule::verify(own));
  if (!GetParam().is_needed) return;
  remove_fences(own.roles[0].events);
  const auto found = schedule::verify(own);
  ASSERT_TRUE(found);
  EXPECT_NE(found->message.find("its values may be on their way"), std::string::npos) << found->message;
}

// Events of a step that reads a vector and multiplies what it makes of it, or something else.
schedule::Events step(bool takes, schedule::Schedule& made) {
  using namespace schedule;
  Builder b("step");
  const int vector = b.buffer({"vector", schedule::Space::shared, 2}),
            weights = b.buffer({"weights", schedule::Space::registers}),
            other = b.buffer({"other", schedule::Space::registers}),
            sum = b.buffer({"sum", schedule::Space::registers});
  const int ring = b.ring({"vector", {vector}, 2});
  b.role({"consumer"}, [&] {
    b.operation("weigh", {read(vector, at_cursor(ring)), update(weights)});
    b.gemm("multiply", {read(takes ? weights : other), update(sum)});
    b.emit(WarpSync{});
    b.emit(Arrive{Side::empty, {ring}}, Who::each_warp);
  });
  made = b.take();
  return made.roles[0].events;
}

TEST(ReadFences, AreNotNeededBehindAProductThatTakesTheValues) {
  for (const bool takes : {true, false}) {
    schedule::Schedule made;
    schedule::Events events = step(takes, made);
    fence_reads(events, made, [](int) { return true; });
    EXPECT_EQ(fences_in(events), takes ? 0 : 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ReadFencesOf,
                         ::testing::Values(ReadCase{"scales_sum", Use::scales_sum, 4, true},
                                           ReadCase{"weighs_operand", Use::weighs_operand, 0},
                                           ReadCase{"by_products_only", Use::by_products_only, 0}),
                         [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace tegula::passes

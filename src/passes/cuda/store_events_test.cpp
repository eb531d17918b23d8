// What consumers store by the copy engine, as events: the schedules are clean, and every one of these events
// that is removed, weakened or moved after the next is found.
#include "passes/cuda/store_events.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "passes/cuda/testing/plane_sums.hpp"
#include "passes/cuda/testing/plans.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace store_events_test {

using namespace lang;

enum class To : std::uint8_t { tensor, sum, sum_in_turn };

// Changes that do no harm, and the reason, for the reader.
struct Harmless {
  const char* reason;
  std::vector<std::string> changes;
};

struct StoreCase {
  const char* name;
  To to = To::tensor;
  int columns = 64;
  int sums = 1;  // statements that store
  enum class Steps : std::uint8_t { none, all, chosen } steps = Steps::none;  // of a loop, which store
  std::vector<Harmless> harmless = {};
};

void PrintTo(const StoreCase& c, std::ostream* out) { *out << c.name; }

// The products of the steps, of those that are chosen into rows of their own.
Kernel product_of_steps(const StoreCase& c) {
  const bool all = c.steps == StoreCase::Steps::all;
  return kernel("product", [&] {
    Dim K("K"), B("B");
    Tensor x = input("x", {B, 64, K}, bf16), y = input("y", {c.columns, K}, bf16),
           out = inout("out", {K, c.columns}, c.to == To::tensor ? bf16 : f32),
           limits = input("limits", {K}, i32);
    grid(B, {.threads = 128}, [&](Index b) {
      pipelined(ceildiv(K, 64), {.stages = 2}, [&](Index k) {
        const auto step = [&] {
          Shared p({64, 64}, bf16), q({c.columns, 64}, bf16);
          copy(x.slice(b).at(0, k * 64), p);
          copy(y.at(0, k * 64), q);
          Fragment part({64, c.columns}, f32, 0);
          gemm(p, q.T(), part);
          const auto to = all ? out.at(0, 0) : out.at(k * 64, 0);
          if (c.to == To::tensor) copy(part, to);
          if (c.to == To::sum) accumulate(to, part);
        };
        if (all) return step();
        when(limits(k) > 0, step);
      });
    });
  });
}

// Blocks of 64 rows and so many columns of a product.
Kernel product(const StoreCase& c) {
  if (c.steps != StoreCase::Steps::none) return product_of_steps(c);
  return kernel("product", [&] {
    Dim K("K"), B("B");
    Tensor x = input("x", {B, 64, K}, bf16), y = input("y", {c.columns, K}, bf16),
           out = inout("out", {64 * c.sums, c.columns}, f32);
    grid(B, {.threads = 128}, [&](Index b) {
      Fragment sum({64, c.columns}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = 2}, [&](Index k) {
        Shared p({64, 64}, bf16), q({c.columns, 64}, bf16);
        copy(x.slice(b).at(0, k * 64), p);
        copy(y.at(0, k * 64), q);
        gemm(p, q.T(), sum);
      });
      for (int i = 0; i < c.sums; ++i) {
        if (c.to == To::tensor) copy(sum, out.at(i * 64, 0));
        if (c.to == To::sum) accumulate(out.at(0, 0), sum);
        if (c.to == To::sum_in_turn) accumulate(out.at(0, 0), sum, {.order = b, .consecutive = true});
      }
    });
  });
}

schedule::Schedule schedule_of(const StoreCase& c) {
  return *testing::Lowered(product(c)).plan.grids[0].schedule;
}

// Those of stores: their words name one of these.
bool is_of_stores(const std::string& name) {
  for (const char* word : {"store", "barrier 1 +", "turn", "handed over", "staging", "proxy fence"})
    if (name.find(word) != std::string::npos) return true;
  return name.rfind("adder", 0) == 0;
}

std::string at(int event, const char* words) { return fmt::format("consumer {}: {}", event, words); }

// The second of two buffers was free before the store began.
Harmless second_buffer(int wait) {
  constexpr const char* stage = ", behind stage: reads f0, writes staging[1]";
  const std::string begins = at(wait, "store wait 1 read by one thread a group"),
                    meets = at(wait + 1, "barrier 1 + group, 128 threads");
  return {"the buffer is free since the store began",
          {begins + ", removed", begins + ", one more pending", meets + ", removed", begins + stage,
           meets + stage}};
}

const StoreCase cases[] = {
    {"boxes_with_a_buffer_each",
     To::tensor,
     64,
     1,
     StoreCase::Steps::none,
     {{"both boxes are awaited together", {at(22, "store commit by one thread a group, removed")}}}},
    {"boxes_in_turn",
     To::tensor,
     128,
     1,
     StoreCase::Steps::none,
     {{"the last store is of the other buffer",
       {at(16, "store wait 0 read by one thread a group, one more pending")}},
      second_buffer(23)}},
    {"stores_behind_each_other",
     To::tensor,
     64,
     2,
     StoreCase::Steps::none,
     {{"both boxes are awaited together",
       {at(22, "store commit by one thread a group, removed"),
        at(31, "store commit by one thread a group, removed")}}}},
    {"a_sum",
     To::sum,
     128,
     1,
     StoreCase::Steps::none,
     {{"the last store is of the other buffer",
       {at(16, "store wait 0 read by one thread a group, one more pending")}},
      second_buffer(23)}},
    {"handed_over",
     To::sum_in_turn,
     64,
     1,
     StoreCase::Steps::none,
     {{"the consumers store nothing themselves",
       {at(29, "store wait 0 read by one thread a group, removed"),
        at(29, "store wait 0 read by one thread a group, one more pending"),
        at(29,
           "store wait 0 read by one thread a group, behind send tile in handed over by one thread a "
           "group")}},
      {"at the end nothing is staged",
       {at(32, "proxy fence, removed"), at(32, "proxy fence, of the other memory")}},
      {"nothing comes behind it", {at(35, "advance handed over, removed")}},
      {"both boxes are awaited together", {"adder 9: store commit by one thread a group, removed"}}}},
    {"in_steps",
     To::sum,
     64,
     1,
     StoreCase::Steps::all,
     {{"the consumers store nothing themselves",
       {at(19, "store wait 0 read by one thread a group, removed"),
        at(19, "store wait 0 read by one thread a group, one more pending"),
        at(19,
           "store wait 0 read by one thread a group, behind send tile in handed over by one thread a "
           "group")}},
      {"at the end nothing is staged",
       {at(22, "proxy fence, removed"), at(22, "proxy fence, of the other memory")}},
      {"nothing comes behind it", {at(25, "advance handed over, removed")}},
      {"both boxes are awaited together", {"adder 7: store commit by one thread a group, removed"}}}},
    {"in_chosen_steps", To::tensor, 128, 1, StoreCase::Steps::chosen},
    {"sums_of_chosen_steps",
     To::sum,
     128,
     1,
     StoreCase::Steps::chosen,
     {{"the last store is of the other buffer",
       {at(28, "store wait 0 read by one thread a group, one more pending")}},
      second_buffer(35)}},
    {"handed_over_in_chosen_steps",
     To::sum,
     64,
     1,
     StoreCase::Steps::chosen,
     {{"the consumers store nothing themselves",
       {at(35, "store wait 0 read by one thread a group, removed"),
        at(35, "store wait 0 read by one thread a group, one more pending"),
        at(35,
           "store wait 0 read by one thread a group, behind send tile in handed over by one thread a "
           "group")}},
      {"at the end nothing is staged",
       {at(38, "proxy fence, removed"), at(38, "proxy fence, of the other memory")}},
      {"nothing comes behind it", {at(41, "advance handed over, removed")}},
      {"both boxes are awaited together", {"adder 7: store commit by one thread a group, removed"}}}},
    {"in_turn_by_itself",
     To::sum_in_turn,
     128,
     1,
     StoreCase::Steps::none,
     {{"the stores are done before the turn is passed",
       {at(22, "store wait 0 read by one thread a group, removed"),
        at(22, "store wait 0 read by one thread a group, one more pending"),
        at(22, "store wait 0 read by one thread a group, behind stage: reads f0, writes staging[0]"),
        at(55, "store wait 0 read by one thread a group, removed"),
        at(55, "store wait 0 read by one thread a group, one more pending")}},
      second_buffer(31)}},
};

const StoreCase both = {"handed_over_and_by_itself", To::sum_in_turn, 64, 2};

class StoreEventsOf : public ::testing::TestWithParam<StoreCase> {};

TEST_P(StoreEventsOf, AreSimulated) {
  const schedule::Schedule s = schedule_of(GetParam());
  const auto found = schedule::verify(s, schedule::thorough);
  EXPECT_FALSE(found) << found->message << "\n" << schedule::print(s);
}

TEST_P(StoreEventsOf, AreNotToBeChanged) {
  const schedule::Schedule s = schedule_of(GetParam());
  std::vector<std::string> accepted;
  int changes = 0;
  for (const auto& all : {schedule::mutations(s), schedule::moves(s)})
    for (const schedule::Mutation& m : all)
      if (is_of_stores(m.name)) {
        ++changes;
        if (!schedule::verify(m.schedule)) accepted.push_back(m.name);
      }
  std::vector<std::string> harmless;
  for (const Harmless& h : GetParam().harmless)
    harmless.insert(harmless.end(), h.changes.begin(), h.changes.end());
  std::sort(accepted.begin(), accepted.end());
  std::sort(harmless.begin(), harmless.end());
  EXPECT_GT(changes, 0);
  EXPECT_EQ(accepted, harmless) << schedule::print(s);
}

TEST(StoresTogether, AreSimulated) {
  const auto found = schedule::verify(schedule_of(both));
  EXPECT_FALSE(found) << found->message;
}

// What is handed over tells a place and a word alone: sums that go along other dimensions are added by
// threads of their own groups.
TEST(SumsHandedOver, GoAlongTheSameDimensions) {
  const auto sends = [](bool along_same) {
    const testing::Lowered lowered(testing::plane_sums(along_same));
    const std::string text = schedule::print(*lowered.plan.grids[0].schedule);
    int count = 0;
    for (std::size_t at = 0; (at = text.find("send tile", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(sends(true) - sends(false), 1);
}

// Two statements have words of their own, and turns that are counted apart: with the words of the first one,
// the turns of a block that makes only one of the sums, as in some of the simulated runs, would be those of
// the other sum.
// The statements add to tiles of one tensor, whose words they share.
TEST(SumsHandedOver, ShareTheTurnsOfTheirTensor) {
  const Kernel program = kernel("twice", [] {
    Dim K("K"), B("B");
    Tensor x = input("x", {B, 64, K}, bf16), y = input("y", {32, K}, bf16),
           out = inout("out", {128, 32}, f32), flags = input("flags", {B}, i32);
    grid(B, {.threads = 128}, [&](Index b) {
      Fragment sum({64, 32}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = 2}, [&](Index k) {
        Shared p({64, 64}, bf16), q({32, 64}, bf16);
        copy(x.slice(b).at(0, k * 64), p);
        copy(y.at(0, k * 64), q);
        gemm(p, q.T(), sum);
      });
      when(flags(b) != 0, [&] { accumulate(out.at(0, 0), sum, {.order = b, .consecutive = true}); });
      accumulate(out.at(64, 0), sum, {.order = b, .consecutive = true});
    });
  });
  const schedule::Schedule s = *testing::Lowered(program).plan.grids[0].schedule;
  const auto found = schedule::verify(s, schedule::thorough);
  EXPECT_FALSE(found) << found->message;
  std::vector<int> pairs;
  const auto look = [&](const auto& self, const schedule::Events& events) -> void {
    for (const schedule::Event& e : events) {
      if (const auto* loop = std::get_if<schedule::Loop>(&e.what)) self(self, loop->body);
      if (const auto* guard = std::get_if<schedule::Guard>(&e.what)) self(self, guard->body);
      const auto* sent = std::get_if<schedule::SendTile>(&e.what);
      if (sent && e.stmt) pairs.push_back(sent->pair);
    }
  };
  for (const schedule::Role& role : s.roles) look(look, role.events);
  EXPECT_EQ(pairs, (std::vector{0, 0})) << schedule::print(s);
}

// Where the second store of a step stands.
enum class Second : std::uint8_t { always, in_branch, before_limit };

Kernel steps(Second second) {
  return kernel("steps", [&] {
    Dim K("K"), B("B");
    Tensor x = input("x", {B, 64, K}, bf16), y = input("y", {64, K}, bf16),
           out = output("out", {B, K, 64}, bf16), turned = output("turned", {B, K, 64}, bf16),
           limits = input("limits", {B}, i32);
    grid(B, {.threads = 128, .blocks_per_processor = 1}, [&](Index b) {
      Fragment sum({64, 64}, f32, 0);
      Expr limit = limits(b);
      pipelined(ceildiv(K, 64), {.stages = 2}, [&](Index k) {
        Shared p({64, 64}, bf16), q({64, 64}, bf16);
        copy(x.slice(b).at(0, k * 64), p);
        copy(y.at(0, k * 64), q);
        gemm(p, q.T(), sum);
        copy(sum, out.slice(b).at(k * 64, 0));
        if (second == Second::always) copy(sum.T(), turned.slice(b).at(k * 64, 0));
        if (second == Second::in_branch) when(b > 0, [&] { copy(sum.T(), turned.slice(b).at(k * 64, 0)); });
        if (second == Second::before_limit)
          copy(sum.T(), turned.slice(b).slice(range(0, limit)).at(k * 64, 0));
      });
    });
  });
}

// A step that stores its sum, and once more transposed, awaits what the step before it has sent from the same
// buffers, not what it has just sent from others.
TEST(StoresOfAStep, HaveBuffersOfTheirOwn) {
  const testing::Lowered lowered(steps(Second::always));
  const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
  const auto found = schedule::verify(s, schedule::thorough);
  EXPECT_FALSE(found) << found->message << schedule::print(s);
  int waits = 0;
  for (const schedule::Mutation& m : schedule::mutations(s)) {
    if (m.name.find("one more pending") == std::string::npos) continue;
    ++waits;
    EXPECT_TRUE(schedule::verify(m.schedule)) << m.name;
  }
  EXPECT_GE(waits, 2) << schedule::print(s);
}

// Warps that store what they have staged themselves meet nowhere, and each of their events is needed.
TEST(StoresOfAStep, AreNotToBeChangedWhereWarpsMakeThem) {
  const schedule::Schedule s = *testing::Lowered(steps(Second::always)).plan.grids[0].schedule;
  EXPECT_FALSE(schedule::verify(s, schedule::thorough));
  const std::string text = schedule::print(s);
  EXPECT_EQ(text.find("barrier 1 +"), std::string::npos) << text;
  std::vector<std::string> accepted;
  for (const auto& all : {schedule::mutations(s), schedule::moves(s)})
    for (const schedule::Mutation& m : all)
      if ((is_of_stores(m.name) || m.name.find("warp sync") != std::string::npos) &&
          !schedule::verify(m.schedule))
        accepted.push_back(m.name);
  // The product whose tiles are let go has been awaited by all threads.
  EXPECT_EQ(accepted, std::vector<std::string>{"consumer 9: warp sync, removed"}) << text;
}

// A store that not every step makes leaves the other one in doubt about what is still being read.
TEST(StoresOfAStep, ShareBuffersWhereOneIsNotAlwaysMade) {
  for (const Second second : {Second::in_branch, Second::before_limit}) {
    const testing::Lowered lowered(steps(second));
    const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
    const auto found = schedule::verify(s, schedule::thorough);
    EXPECT_FALSE(found) << found->message << schedule::print(s);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, StoreEventsOf, ::testing::ValuesIn(cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace store_events_test
}  // namespace tegula::passes

// Loops with roles whose steps a branch leaves out, that are left early, or that stand in loops of unknown
// length: both roles find the same steps, and slots are counted by those that are taken.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "emulation/testing/compared.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "runtime/testing/watchdog.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::emulation {
namespace chosen_steps_test {

constexpr std::chrono::seconds most_time{60};
constexpr int dim = 64, most = 9, blocks = 4, height = 64 * most;

struct Block {
  const lang::Tensor& flags;  // of the steps of all blocks
  lang::Expr number;
  std::function<void(const lang::Expr&)> step;

  lang::Expr flag(const lang::Expr& j) const { return flags(number * most + j); }
};

struct Way {
  const char* name;
  std::function<void(const Block&)> loop;
  bool is_chosen = true;  // its loop is one over the steps that are taken
};

void each(const std::function<void(const lang::Index&)>& body) { lang::pipelined(most, {.stages = 2}, body); }

const std::vector<Way> ways{
    {"branch_on_the_number",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) { when(j % 3 != 1, [&] { b.step(j); }); });
     }},
    {"branch_on_an_element",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) { when(b.flag(j) != 0, [&] { b.step(j); }); });
     }},
    {"branch_in_a_branch",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) {
         when(j != 2, [&] { when(b.flag(j) != 0 || j == 5, [&] { b.step(j); }); });
       });
     }},
    {"entry_of_a_list",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) {
         Expr n = b.flag(j) * 3 - 1;
         when(n >= 0, [&] { b.step(n + j % 2); });
       });
     }},
    {"other_part",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) { when(b.flag(j) == 0, [] {}).otherwise([&] { b.step(j); }); });
     }},
    {"break_on_the_number",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) {
         break_if(j == 2 + b.number);
         b.step(j);
       });
     }},
    {"break_on_an_element",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) {
         break_if(b.flag(j) != 0 && j > 1);
         b.step(j);
       });
     }},
    {"break_in_front_of_a_branch",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) {
         break_if(b.flag(j) == 0 && j > 4);
         when(b.flag(j) != 0, [&] { b.step(j); });
       });
     }},
    {"range_from_elements",
     [](const Block& b) {
       using namespace lang;
       pipelined(range(b.flag(0), b.flag(1) + 6), {.stages = 2},
                 [&](const Index& j) { when(b.flag(j) != 0, [&] { b.step(j); }); });
     }},
    {"break_behind_the_step",
     [](const Block& b) {
       using namespace lang;
       each([&](const Index& j) {
         b.step(j);
         break_if(b.flag(j) != 0 && j > 2);
       });
     },
     false},
    {"break_on_a_count",
     [](const Block& b) {
       using namespace lang;
       Var count = 0;
       each([&](const Index& j) {
         count += b.flag(j);
         break_if(count > 2);
         b.step(j);
       });
     },
     false},
    {"branch_on_a_count",
     [](const Block& b) {
       using namespace lang;
       Var count = 0;
       each([&](const Index& j) {
         when(count < 3, [&] {
           b.step(j);
           count += 1 + b.flag(j);
         });
       });
     },
     false},
    {"sought_by_the_program",
     [](const Block& b) {
       using namespace lang;
       Var at = 0;
       each([&](const Index&) {
         loop_while([&] { return at < most - 1 && b.flag(at) == 0; }, [&] { at += 1; });
         break_if(at >= most - 1);
         b.step(Expr(at));
         at += 1;
       });
     },
     false},
    {"loops_in_a_while",
     [](const Block& b) {
       using namespace lang;
       Var outer = 0;
       loop_while([&] { return outer < 3 && b.flag(outer) != 1; },
                  [&] {
                    pipelined(b.flag(outer + 1) + 2, {.stages = 2}, [&](Index j) { b.step(j + outer); });
                    outer += 1;
                  });
     },
     false},
    {"chosen_in_a_while",
     [](const Block& b) {
       using namespace lang;
       Var outer = 0;
       loop_while([&] { return outer < 3; },
                  [&] {
                    pipelined(4, {.stages = 2},
                              [&](Index j) { when(b.flag(outer + j) != 0, [&] { b.step(j + outer); }); });
                    outer += 1 + b.flag(outer);
                  });
     }},
    {"waves_of_the_program",
     [](const Block& b) {
       using namespace lang;
       serial(range(b.number, 6), [&](Index wave) {
         when(b.flag(wave) != 0 || wave == 3, [&] {
           pipelined(3, {.stages = 2},
                     [&](Index j) { when(b.flag(j + wave) != 0, [&] { b.step(j + wave); }); });
         });
       });
     }},
    {"outer_break",
     [](const Block& b) {
       using namespace lang;
       serial(3, [&](Index wave) {
         break_if(b.flag(wave) != 0 && wave > 0);
         pipelined(2 + b.flag(wave), {.stages = 2}, [&](Index j) { b.step(j + wave); });
       });
     },
     false},
};

// What a step does.
enum class Does : std::uint8_t { product, attention, work_behind, tile_of_some_steps };
constexpr const char* names[] = {"product", "attention", "work_behind", "tile_of_some_steps"};

struct Tensors {
  lang::Tensor keys = lang::input("keys", {height, dim}, bf16),
               values = lang::input("values", {height, dim}, bf16),
               flags = lang::input("flags", {blocks * most + most}, i32),
               q = lang::input("q", {64, dim}, bf16), out = lang::output("out", {64 * blocks, dim}, f32);
};

void step(const Tensors& t, const lang::Shared& queries, lang::Fragment& sum, Does does,
          const lang::Expr& j) {
  using namespace lang;
  Shared k({64, dim}, bf16);
  copy(t.keys.at(j * 64, 0), k);
  if (does == Does::product) return gemm(queries, k, sum);
  if (does == Does::tile_of_some_steps) {
    gemm(queries, k, sum);
    when(t.flags(j) != 0, [&] {
      Shared v({64, dim}, bf16);
      copy(t.values.at(j * 64, 0), v);
      parallel(sum, [&](Index i, Index c) { sum(i, c) += f32(v(i, c)); });
    });
    return;
  }
  Shared v({64, dim}, bf16);
  copy(t.values.at(j * 64, 0), v);
  Fragment s({64, 64}, f32, 0);
  gemm(queries, k.T(), s);
  parallel(s, [&](Index i, Index c) { s(i, c) = s(i, c) * 0.25f + f32(j); });
  gemm(s.to(bf16), v, sum);
  if (does == Does::work_behind) parallel(sum, [&](Index i, Index c) { sum(i, c) *= 0.5f; });
}

lang::Kernel program_of(const Way& way, Does does) {
  using namespace lang;
  return kernel("chosen_steps", [&] {
    Tensors t;
    grid(blocks, {.threads = 128}, [&](Index b) {
      Shared queries({64, dim}, bf16);
      copy(t.q.at(0, 0), queries);
      Fragment sum({64, dim}, f32, 0);
      way.loop({t.flags, b, [&](const Expr& j) { step(t, queries, sum, does, j); }});
      copy(sum, t.out.at(b * 64, 0));
    });
  });
}

// All flags of the first block are 0, all of the second are 1.
Tensor flags() {
  const Tensor result = Tensor::random_integers({blocks * most + most}, i32, 5, 0, 2);
  for (int i = 0; i < 2 * most; ++i) result.at<std::int32_t>(i) = i / most;
  return result;
}

struct Case {
  Way way;
  Does does;
};
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Way& way : ways)
    for (const Does does : {Does::product, Does::attention}) result.push_back({way, does});
  for (std::size_t i = 1; i < ways.size(); i += 4)
    for (const Does does : {Does::work_behind, Does::tile_of_some_steps}) result.push_back({ways[i], does});
  return result;
}

class ChosenSteps : public ::testing::TestWithParam<Case> {};

TEST_P(ChosenSteps, AreThoseOfTheProgram) {
  const Watchdog watchdog("chosen steps", most_time);
  const lang::Kernel program = program_of(GetParam().way, GetParam().does);
  expect_as_interpreted(
      program,
      {Tensor::random_normal({height, dim}, bf16, 1), Tensor::random_normal({height, dim}, bf16, 2), flags(),
       Tensor::random_normal({64, dim}, bf16, 3)},
      {64 * blocks, dim}, 2);
}

// Products run under what the next step taken does, wherever the loop is one over chosen steps.
TEST_P(ChosenSteps, ArePlannedAsOthersAre) {
  const passes::CudaPlan plan = passes::plan_for_cuda(*program_of(GetParam().way, GetParam().does).ir(), {});
  ASSERT_TRUE(plan.grids[0].roles);
  const auto& shapes = plan.grids[0].consumers.shapes;
  const Does does = GetParam().does;
  if (!GetParam().way.is_chosen) return;
  EXPECT_EQ(shapes.size(), does == Does::product || does == Does::attention ? 1u : 0u);
  for (const auto& [loop, shape] : shapes)
    EXPECT_EQ(shape, does == Does::product ? passes::LoopShape::deep : passes::LoopShape::delayed);
}

// No wait and no release of either role can be left out.
TEST_P(ChosenSteps, NeedAllTheirEvents) {
  const passes::CudaPlan plan = passes::plan_for_cuda(*program_of(GetParam().way, GetParam().does).ir(), {});
  ASSERT_TRUE(plan.grids[0].schedule);
  const schedule::Schedule& schedule = *plan.grids[0].schedule;
  int changed = 0;
  for (const schedule::Mutation& m : schedule::mutations(schedule)) {
    const auto is = [&](const char* wanted) { return m.name.find(wanted) != std::string::npos; };
    // The number of the last block is the last thing that the producer hands over.
    if (is("advance tile")) continue;
    if (!is("removed") || !(is("wait full") || is("acquire") || is("release") || is("advance"))) continue;
    ++changed;
    EXPECT_TRUE(schedule::verify(m.schedule)) << m.name << "\n" << schedule::print(schedule);
  }
  EXPECT_GE(changed, 6);
}

TEST(ChosenStepsText, IsAccepted) {
  const codegen::testing::Nvrtc* nvrtc = codegen::testing::Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << "NVRTC was not found";
  for (const Way& way : ways) {
    const std::string name = way.name;
    if (name != "branch_on_an_element" && name != "break_on_an_element" && name != "loops_in_a_while")
      continue;
    for (const Does does : {Does::product, Does::attention}) {
      const codegen::testing::Compiled compiled = nvrtc->compile(text_with_roles(program_of(way, does)), 90);
      ASSERT_TRUE(compiled.ok) << name << compiled.log;
      EXPECT_EQ(compiled.log.find("C75"), std::string::npos) << name << compiled.log;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ChosenSteps, ::testing::ValuesIn(cases()), [](const auto& info) {
  return fmt::format("{}_{}", info.param.way.name, names[static_cast<int>(info.param.does)]);
});

}  // namespace chosen_steps_test
}  // namespace tegula::emulation

// Steps of several products, of which the last run under the next step's work, or run on into the next step.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "emulation/testing/compared.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "runtime/testing/watchdog.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::emulation {
namespace products_in_flight_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 64, dim = 64;

// What a step has: tiles of `keys` and `values`, queries of the block, and the block's sums.
struct Step {
  const lang::Index& j;
  const lang::Shared &q, &q2;
  const lang::Tensor &keys, &values;
  lang::Fragment &sum, &other;

  lang::Shared tile(const lang::Tensor& from, int height = 64) const {
    lang::Shared result({height, dim}, bf16);
    lang::copy(from.at(j * 64), result);
    return result;
  }
};

void round_up(lang::Fragment& s) {
  using namespace lang;
  parallel(s, [&](Index i, Index c) { s(i, c) = max(s(i, c), 0.5f); });
}

using passes::LoopShape;

struct Products {
  const char* name;
  int stages;
  LoopShape shape;
  void (*step)(const Step& t);
};

const std::vector<Products> all_products{
    {"keys_that_are_values", 3, LoopShape::delayed,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys);
       Fragment s({rows, 64}, f32, 0);
       gemm(t.q, k.T(), s);
       round_up(s);
       gemm(s.to(bf16), k, t.sum);
     }},
    {"keys_that_are_values_in_two_slots", 2, LoopShape::plain,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys);
       Fragment s({rows, 64}, f32, 0);
       gemm(t.q, k.T(), s);
       round_up(s);
       gemm(s.to(bf16), k, t.sum);
     }},
    {"scores_of_two_parts", 3, LoopShape::delayed,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), more = t.tile(t.values);
       Fragment s({rows, 64}, f32, 0);
       gemm(t.q, k.T(), s);
       gemm(t.q2, more.T(), s);
       round_up(s);
       gemm(s.to(bf16), k, t.sum);
     }},
    {"two_tiles_of_values", 2, LoopShape::delayed,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), left = t.tile(t.values), right = t.tile(t.keys);
       Fragment s({rows, 64}, f32, 0), p({rows, 64}, bf16);
       gemm(t.q, k.T(), s);
       round_up(s);
       copy(s, p);
       gemm(p, left, t.sum);
       gemm(p, right, t.other);
     }},
    {"one_tile_for_three", 3, LoopShape::delayed,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys);
       Fragment s({rows, 64}, f32, 0), p({rows, 64}, bf16);
       gemm(t.q, k.T(), s);
       round_up(s);
       copy(s, p);
       gemm(p, k, t.sum);
       gemm(p, k.T(), t.other);
     }},
    {"two_scores_and_two_sums", 3, LoopShape::delayed,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys, 32), v = t.tile(t.values, 32);
       Fragment s({rows, 32}, f32, 0), d({rows, 32}, f32, 0), p({rows, 32}, bf16), ds({rows, 32}, bf16);
       gemm(t.q, k.T(), s);
       gemm(t.q2, v.T(), d);
       round_up(s);
       copy(s, p);
       parallel(ds, [&](Index i, Index c) { ds(i, c) = s(i, c) * d(i, c) * 0.1f; });
       gemm(p, v, t.sum);
       gemm(ds, k, t.other);
     }},
    {"work_between_three", 2, LoopShape::delayed,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), more = t.tile(t.keys), v = t.tile(t.values);
       Fragment s({rows, 64}, f32, 0), u({rows, 64}, f32, 0);
       gemm(t.q, k.T(), s);
       round_up(s);
       gemm(s.to(bf16), more, u);
       round_up(u);
       gemm(u.to(bf16), v, t.sum);
     }},
    {"two_sums", 2, LoopShape::deep,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), v = t.tile(t.values);
       gemm(k, v, t.sum);
       gemm(k.T(), v, t.other);
     }},
    {"two_products_of_one_sum", 3, LoopShape::deep,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), v = t.tile(t.values), more = t.tile(t.values);
       gemm(k, v, t.sum);
       gemm(more, v, t.sum);
       gemm(k.T(), more, t.other);
     }},
    {"sums_added_to_others", 2, LoopShape::twofold,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), v = t.tile(t.values);
       Fragment partial({rows, 64}, f32, 0);
       gemm(k, v, partial);
       parallel(t.sum, [&](Index i, Index c) { t.sum(i, c) += partial(i, c) * (f32(t.j) + 0.5f); });
     }},
    {"sums_scaled_by_a_tile", 2, LoopShape::twofold,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), v = t.tile(t.values), factors({64, dim}, bf16);
       copy(t.keys.at(t.j * 64), factors);
       Fragment partial({rows, 64}, f32, 0);
       gemm(k.T(), v, partial);
       parallel(t.sum, [&](Index i, Index c) {
         t.sum(i, c) += partial(i, c) * (f32(factors(i, 3)) + f32(t.values(t.j * 64, c)));
       });
     }},
    {"two_sums_added_where_registers_end", 3, LoopShape::plain,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), v = t.tile(t.values);
       Fragment left({rows, 64}, f32, 0), right({rows, 64}, f32, 0);
       gemm(k, v, left);
       gemm(t.q, k, left);
       gemm(k.T(), v, right);
       round_up(left);
       parallel(t.sum, [&](Index i, Index c) { t.sum(i, c) += left(i, c) * 0.25f; });
       parallel(t.other, [&](Index i, Index c) { t.other(i, c) = max(t.other(i, c), right(i, c)); });
     }},
    {"sums_added_in_one_slot", 1, LoopShape::plain,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys), v = t.tile(t.values);
       Fragment partial({rows, 64}, f32, 0);
       gemm(k, v, partial);
       parallel(t.sum, [&](Index i, Index c) { t.sum(i, c) += partial(i, c) * 0.5f; });
     }},
    {"sum_of_the_step_before", 2, LoopShape::plain,
     [](const Step& t) {
       using namespace lang;
       Shared k = t.tile(t.keys);
       Fragment u({rows, 64}, f32, 0);
       gemm(t.sum.to(bf16), k, u);
       round_up(u);
       gemm(u.to(bf16), k.T(), t.sum);
     }},
};

lang::Kernel program_of(const Products& c) {
  using namespace lang;
  return kernel("products_in_flight", [&] {
    Dim n("n");
    lang::Tensor q = input("q", {2 * rows, dim}, bf16), keys = input("keys", {n, dim}, bf16),
                 values = input("values", {n, dim}, bf16), out = output("out", {2 * rows, dim}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared first({rows, dim}, bf16), second({rows, dim}, bf16);
      copy(q.at(0, 0), first);
      copy(q.at(rows, 0), second);
      Fragment sum({rows, dim}, f32, 0), other({rows, dim}, f32, 0);
      pipelined(ceildiv(n, 64), {.stages = c.stages}, [&](Index j) {
        c.step({j, first, second, keys, values, sum, other});
      });
      copy(sum, out.at(0, 0));
      copy(other, out.at(rows, 0));
    });
  });
}

class ProductsInFlight : public ::testing::TestWithParam<Products> {};

TEST_P(ProductsInFlight, GiveTheSame) {
  const Watchdog watchdog("products in flight", most_time);
  const lang::Kernel program = program_of(GetParam());
  for (const int n : {0, 64, 100, 128, 330}) {
    const auto partial = [&](std::uint64_t seed) {
      return Tensor::random_uniform({n, dim}, bf16, seed, -0.25, 0.25);
    };
    expect_as_interpreted(
        program, {Tensor::random_uniform({2 * rows, dim}, bf16, 1, -0.25, 0.25), partial(2), partial(3)},
        {2 * rows, dim}, 2e-2);
  }
}

// In the shape that is expected, and without a wait or release that is not needed.
TEST_P(ProductsInFlight, AreAwaitedWhereNeeded) {
  const Products& c = GetParam();
  const passes::CudaPlan plan = passes::plan_for_cuda(*program_of(c).ir(), {});
  const passes::GridPlan& own = plan.grids[0];
  ASSERT_TRUE(own.schedule) << own.no_roles.why;
  ASSERT_EQ(own.consumers.shapes.size(), c.shape == LoopShape::plain ? 0u : 1u)
      << print(own.steps, *own.roles);
  for (const auto& [loop, shape] : own.consumers.shapes) EXPECT_EQ(shape, c.shape);
  std::vector<std::string> harmless;
  for (const schedule::Mutation& m : schedule::mutations(*own.schedule)) {
    const bool waits =
        m.name.find("wait") != std::string::npos || m.name.find("release") != std::string::npos;
    if (m.name.rfind("consumer", 0) != 0 || !waits) continue;
    if (!schedule::verify(m.schedule, schedule::thorough)) harmless.push_back(m.name);
  }
  // One that shows ptxas that sums are not in flight: they were awaited in the step before.
  EXPECT_EQ(harmless.size(), c.shape == LoopShape::twofold ? 2u : 0u)
      << fmt::format("{}\n", fmt::join(harmless, "\n")) << schedule::print(*own.schedule);
  for (const std::string& name : harmless) EXPECT_NE(name.find("gemm wait 1"), std::string::npos) << name;
}

// Of two halves of a tile, in one set of registers.
lang::Kernel sums_in_turns() {
  using namespace lang;
  constexpr int half = 2 * rows;
  return kernel("sums_in_turns", [&] {
    Dim n("n");
    lang::Tensor x = input("x", {2 * half, n}, bf16), y = input("y", {n, dim}, bf16),
                 factors = input("factors", {n}, f32), out = output("out", {2 * half, dim}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment upper({half, dim}, f32, 0), lower({half, dim}, f32, 0);
      pipelined(ceildiv(n, 64), {.stages = 3}, [&](Index j) {
        Shared rows_of_x({2 * half, 64}, bf16), rows_of_y({64, dim}, bf16);
        copy(x.at(0, j * 64), rows_of_x);
        copy(y.at(j * 64), rows_of_y);
        Fragment partial({half, dim}, f32);
        for (Fragment* sum : {&upper, &lower}) {
          const int first = sum == &upper ? 0 : half;
          fill(partial, 0);
          gemm(rows_of_x.slice(range(first, first + half), all), rows_of_y, partial);
          parallel(*sum, [&](Index i, Index c) { (*sum)(i, c) += partial(i, c) * factors(j * 64); });
        }
      });
      copy(upper, out.at(0, 0));
      copy(lower, out.at(half, 0));
    });
  });
}

// One warp group multiplies while the other one adds, and no wait or turn can be left out.
TEST(SumsInTurns, GiveTheSame) {
  const Watchdog watchdog("sums in turns", most_time);
  const lang::Kernel program = sums_in_turns();
  const passes::CudaPlan plan = passes::plan_for_cuda(*program.ir(), {});
  const passes::GridPlan& own = plan.grids[0];
  ASSERT_TRUE(own.schedule) << own.no_roles.why;
  const std::string steps = print(own.steps, *own.roles);
  const std::size_t first = steps.find("ping-pong");
  EXPECT_NE(first, std::string::npos) << steps;
  EXPECT_NE(steps.find("ping-pong", first + 1), std::string::npos) << steps;
  for (const schedule::Mutation& m : schedule::mutations(*own.schedule)) {
    const bool waits =
        m.name.find("gemm wait") != std::string::npos || m.name.find("release") != std::string::npos;
    if (m.name.rfind("consumer", 0) != 0 || !waits) continue;
    EXPECT_TRUE(schedule::verify(m.schedule, schedule::thorough)) << m.name;
  }
  for (const int n : {0, 64, 328}) {
    const auto uniform = [](const Shape& shape, DType type, std::uint64_t seed) {
      return Tensor::random_uniform(shape, type, seed, -0.25, 0.25);
    };
    expect_as_interpreted(program,
                          {uniform({4 * rows, n}, bf16, 1), uniform({n, dim}, bf16, 2), uniform({n}, f32, 3)},
                          {4 * rows, dim}, 2e-2);
  }
}

TEST(ProductsInFlightNotes, SayWhatMoreSlotsWouldDo) {
  for (const Products& c : all_products) {
    const passes::CudaPlan plan = passes::plan_for_cuda(*program_of(c).ir(), {});
    const std::vector<std::string> notes = passes::format(plan.grids[0].roles->notes);
    const bool expected = std::string(c.name) == "keys_that_are_values_in_two_slots";
    const bool found = std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
      return note.find("2 slots instead of 3") != std::string::npos;
    });
    EXPECT_EQ(found, expected) << c.name << fmt::format(" {}", fmt::join(notes, "\n"));
  }
}

TEST(ProductsInFlightText, IsAccepted) {
  const codegen::testing::Nvrtc* nvrtc = codegen::testing::Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << "NVRTC was not found";
  for (const Products& c : all_products) {
    const codegen::testing::Compiled compiled = nvrtc->compile(text_with_roles(program_of(c)), 90);
    ASSERT_TRUE(compiled.ok) << c.name << compiled.log;
    EXPECT_EQ(compiled.log.find("C75"), std::string::npos) << c.name << compiled.log;
  }
}

// Sums that are awaited and added, of an operand that all threads of two warp groups make in each step.
TEST(ProductsOfMadeBytes, EndWithTwoWarpGroups) {
  using namespace lang;
  const Watchdog watchdog("products of made bytes", most_time);
  expect_as_interpreted(
      kernel("made",
             [] {
               lang::Tensor x = input("x", {64, 128}, e5m2), y = input("y", {96, 64}, e5m2),
                            out = output("out", {128, 96}, f32);
               grid(1, {.threads = 256}, [&](Index) {
                 Fragment sum({128, 96}, f32, 0);
                 pipelined(2, {.stages = 2}, [&](Index k) {
                   Shared made({128, 32}, e5m2), other({96, 32}, e5m2);
                   parallel(made, [&](Index i, Index j) { made(i, j) = x(k * 32 + j, (i + k * 5) % 128); });
                   copy(y.at(0, k * 32), other);
                   gemm(made, other.T(), sum);
                 });
                 copy(sum, out.at(0, 0));
               });
             }),
      {tegula::Tensor::random_normal({64, 128}, e5m2, 1), tegula::Tensor::random_normal({96, 64}, e5m2, 2)}, {128, 96}, 1e-3,
      {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
}

INSTANTIATE_TEST_SUITE_P(Table, ProductsInFlight, ::testing::ValuesIn(all_products),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace products_in_flight_test
}  // namespace tegula::emulation

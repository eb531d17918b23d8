// Which pipelined loops become loops over the steps that are taken.
#include "passes/cuda/chosen_steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace chosen_steps_test {

using namespace lang;

struct Block {
  const Tensor &x, &flags, &out;
  std::function<void()> step;
};

struct Case {
  const char* name;
  bool chosen;
  void (*body)(const Block& b, const Index& j);
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case cases[] = {
    {"by_its_number", true, [](const Block& b, const Index& j) { when(j > 2, b.step); }},
    {"by_an_element", true, [](const Block& b, const Index& j) { when(b.flags(j) != 0, b.step); }},
    {"by_an_element_that_a_grid_writes", false,
     [](const Block& b, const Index& j) { when(b.out(j) > 0, b.step); }},
    {"left_in_front", true,
     [](const Block& b, const Index& j) {
       break_if(b.flags(j) == 7);
       b.step();
     }},
    {"left_behind", false,
     [](const Block& b, const Index& j) {
       b.step();
       break_if(b.flags(j) == 7);
     }},
    {"nested", true,
     [](const Block& b, const Index& j) {
       break_if(j == 7);
       when(j > 2, [&] {
         Expr n = b.flags(j);
         when(n > 0, b.step);
       });
     }},
    {"tiles_in_front", true,
     [](const Block& b, const Index& j) {
       Shared a({64, 64}, bf16);
       Fragment s({64, 64}, f32, 0);
       when(b.flags(j) != 0, [&] {
         copy(b.x, a);
         gemm(a, a, s);
         b.step();
       });
     }},
    {"something_behind_the_branch", false,
     [](const Block& b, const Index& j) {
       when(j > 2, b.step);
       b.step();
     }},
    {"two_parts", false, [](const Block& b, const Index& j) { when(j > 2, b.step).otherwise(b.step); }},
    {"no_choice", false, [](const Block& b, const Index&) { b.step(); }},
    {"by_what_a_step_counts", false,
     [](const Block& b, const Index&) {
       Var count = 0;
       break_if(count > 3);
       b.step();
       count += 1;
     }},
    {"nothing_is_loaded", false, [](const Block& b, const Index& j) { when(j > 2, [&] { b.out(j) = 1; }); }},
};

class ChosenSteps : public ::testing::TestWithParam<Case> {};

TEST_P(ChosenSteps, AreFound) {
  const Kernel program = kernel("steps", [&] {
    Tensor x = input("x", {64, 64}, bf16), flags = input("flags", {9}, i32), out = output("out", {64}, f32);
    grid(1, [&](Index) {
      Fragment sum({64}, f32, 0);
      pipelined(9, [&](Index j) {
        GetParam().body({x, flags, out,
                         [&] {
                           Shared a({64, 64}, bf16);
                           copy(x, a);
                           parallel(sum, [&](Index i) { sum(i) += f32(a(i, j)); });
                         }},
                        j);
      });
      copy(sum, out);
    });
  });
  const ir::Body& written = program.ir()->grids.front().body;
  StoreForms forms;
  const ir::Body body = with_chosen_steps(
      written, [&](const ir::Buffer& tensor) { return tensor.role == ir::Role::input; }, forms);
  const auto loops = testing::all_of<ir::For>(body);
  const auto chosen =
      std::count_if(loops.begin(), loops.end(), [](const ir::For* n) { return goes_on(*n) != nullptr; });
  EXPECT_EQ(chosen, GetParam().chosen ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(Table, ChosenSteps, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace chosen_steps_test
}  // namespace tegula::passes

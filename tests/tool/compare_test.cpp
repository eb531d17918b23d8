#include "tools/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tegula/error.hpp"

namespace tegula::tool {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

// An operator that fails or is wrong in ways of its own.
ops::Operator faulty(std::function<ops::Tensors()> run) {
  ops::Operator op;
  op.name = "faulty";
  op.outputs = {{"out", "[2]", "f32"}, {"other", "[1]", "f32"}};
  op.run = [run](auto&, auto&, Target) { return run(); };
  op.judge = [](auto&, auto&, const ops::Tensors& results) {
    return ops::judge_all(results,
                          {{"out", Tensor::from<double>({1, 2})}, {"other", Tensor::from<double>({inf})}},
                          {{"out", Tensor::from<float>({1.25F, 2})}, {"other", Tensor::from<float>({inf})}});
  };
  return op;
}

CaseVerdict verdict_of(std::function<ops::Tensors()> run) {
  const ops::Case example{"only", {}, [](std::uint64_t) { return ops::Tensors{}; }, {}};
  return check_case(faulty(std::move(run)), example, Target::interpreter(), 1);
}

TEST(Compare, FindsEveryKindOfFault) {
  const Tensor right = Tensor::from<float>({1.25F, 2}), infinite = Tensor::from<float>({inf});
  const float nan = std::nanf("");
  EXPECT_TRUE(verdict_of([&] { return ops::Tensors{{"out", right}, {"other", infinite}}; }).right());
  const ops::Tensors wrong[] = {
      {{"out", right}},
      {{"out", Tensor::from<float>({1, 3})}, {"other", infinite}},
      {{"out", Tensor::from<float>({nan, 2})}, {"other", infinite}},
      {{"out", right}, {"other", Tensor::from<float>({-inf})}},
      {{"out", right}, {"other", Tensor::from<float>({1e30F})}},
      {{"out", Tensor::from<float>({1, 2, 3})}, {"other", infinite}},
      {{"out", right}, {"other", infinite}, {"third", right}},
  };
  for (auto& results : wrong) EXPECT_FALSE(verdict_of([&] { return results; }).right());
}

TEST(Compare, ReportsTheLargestError) {
  const auto verdict = verdict_of([] {
    return ops::Tensors{{"out", Tensor::from<float>({1.125F, 2.25F})}, {"other", Tensor::from<float>({inf})}};
  });
  ASSERT_EQ(verdict.outputs.size(), 2U);
  for (auto& output : verdict.outputs) EXPECT_EQ(output.error, output.output == "out" ? 0.25 : 0);
}

TEST(Compare, SurvivesAThrow) {
  const auto verdict = verdict_of([]() -> ops::Tensors { throw ArgumentError("no such thing"); });
  EXPECT_FALSE(verdict.right());
  EXPECT_EQ(verdict.failure, "no such thing");
}

}  // namespace
}  // namespace tegula::tool

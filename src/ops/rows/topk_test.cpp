// What the sweep over tables does not say of the largest of rows: special values, ties, several steps.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/test_environment.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace topk_test {

constexpr float inf = std::numeric_limits<float>::infinity();

Tensor row_of(const std::vector<float>& values) {
  return Tensor::from(values).reshape({1, static_cast<std::int64_t>(values.size())});
}

TEST(Topk, OrdersSpecialValues) {
  const Tensor x = row_of({-inf, 3, std::nanf(""), 3, -inf, inf, -0.f, 0});
  for (const Target target : test_targets()) {
    const TopkResult result = topk(x, 8, {.target = target});
    EXPECT_EQ(result.indices.values<std::int32_t>(), (std::vector<std::int32_t>{2, 5, 1, 3, 6, 7, 0, 4}));
    const std::vector<float> values = result.values.values<float>();
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ((std::vector<float>(values.begin() + 1, values.end())),
              (std::vector<float>{inf, 3, 3, 0, 0, -inf, -inf}));
  }
}

// Rows that share a warp of a GPU, and one that takes several lanes of a thread, full of ties.
TEST(Topk, OfShortRowsTakesTheFirstOfEqualOnes) {
  struct Row {
    std::int64_t rows, n, count;
    DType type;
  };
  for (const Row& row :
       {Row{2055, 1, 1, bf16}, Row{33, 40, 40, f32}, Row{2061, 64, 3, f16}, Row{2050, 128, 8, f32},
        Row{2049, 100, 20, bf16}, Row{17, 160, 20, bf16}, Row{5, 257, 8, f32}, Row{3, 512, 70, f32},
        Row{3, 1000, 9, bf16}, Row{2, 1024, 256, f32}}) {
    const Tensor x = Tensor::random_integers({row.rows, row.n}, i32, 1, -4, 5).to(row.type);
    for (const Target target : test_targets()) {
      const OperatorSchema& schema = find_schema("topk");
      const OptionValues options{{"count", row.count}, {"gates", std::string("softmax")}};
      const Tensors results = call_by_name(schema, {{"x", x}}, options, target);
      EXPECT_EQ(faults_of(judge_call(schema, {{"x", x}}, options, results)), "") << row.n << " " << row.count;
    }
  }
}

// Columns of the largest of each row of `n`, the first of equal ones first.
std::vector<std::int32_t> largest(const std::vector<float>& values, std::int64_t n, std::int64_t count) {
  std::vector<std::int32_t> result, order(static_cast<std::size_t>(n));
  for (auto row = values.begin(); row != values.end(); row += n) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
    result.insert(result.end(), order.begin(), order.begin() + count);
  }
  return result;
}

// Numbers of f32 that differ in the last bits only, or are equal, among the chosen and where the choice ends.
TEST(Topk, TellsNumbersApartThatAgreeInTheirFirstBits) {
  struct Row {
    std::int64_t rows, n, count;
    float between;
  };
  for (const Row& row : {Row{2050, 128, 8, 0x1p-20f}, Row{2049, 100, 1, 0x1p-23f}, Row{130, 256, 8, 0x1p-13f},
                         Row{65, 257, 16, 0x1p-16f}, Row{9, 512, 8, 0x1p-12f}, Row{3, 1000, 5, -0x1p-18f}}) {
    std::vector<float> values;
    for (const std::int32_t i :
         Tensor::random_integers({row.rows * row.n}, i32, 3, 0, 200).values<std::int32_t>())
      values.push_back((1 + static_cast<float>(i) * row.between) * (i % 7 == 0 ? -1.f : 1.f));
    const Tensor x = Tensor::from(values).reshape({row.rows, row.n});
    const std::vector<std::int32_t> expected = largest(values, row.n, row.count);
    for (const Target target : {Target::cpu(), Target::emulated_sm90()}) {
      const TopkResult result = topk(x, row.count, {.gates = TopkGates::softmax, .target = target});
      EXPECT_EQ(result.indices.values<std::int32_t>(), expected) << row.n << " " << row.count;
    }
  }
}

TEST(Topk, OfManyTakesSeveralSteps) {
  const Tensor x = Tensor::random_integers({1, 9000}, i32, 1, 0, 50).to(f32);
  for (const Target target : {Target::interpreter(), Target::emulated_sm90()}) {
    const Tensors results =
        call_by_name(find_schema("topk"), {{"x", x}}, {{"count", std::int64_t{256}}}, target);
    EXPECT_EQ(faults_of(judge_call(find_schema("topk"), {{"x", x}}, {{"count", std::int64_t{256}}}, results)),
              "");
  }
}

// Long rows whose largest are fewer than are wanted: NaN first, and the first of the many that are -inf.
TEST(Topk, OrdersSpecialValuesOfLongRows) {
  std::vector<float> row(5000, -inf);
  for (const auto& [at, value] :
       {std::pair{7, std::nanf("")}, {4321, std::nanf("")}, {77, inf}, {99, 3.f}, {4000, 3.f}})
    row[static_cast<std::size_t>(at)] = value;
  const TopkResult result = topk(row_of(row), 17, {.target = Target::emulated_sm90()});
  EXPECT_EQ(result.indices.values<std::int32_t>(),
            (std::vector<std::int32_t>{7, 4321, 77, 99, 4000, 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12}));
  EXPECT_TRUE(std::isnan(result.values.values<float>()[1]));
  EXPECT_EQ(result.values.values<float>()[16], -inf);
}

}  // namespace topk_test
}  // namespace tegula::ops

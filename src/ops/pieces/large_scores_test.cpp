// Attention of finite queries and keys of any size: where scores, times the scale, are beyond what f32 tells
// apart, the largest of a row has all the weight, and results and gradients are those of double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/registry.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::ops {
namespace large_scores_test {

constexpr std::chrono::seconds most_time{200};
constexpr std::int64_t queries = 40, keys = 100, dim = 64;

struct Row {
  std::string name, op;
  Shape lists = {};  // of blocks
  OptionTexts options = {};
  std::vector<DType> types = {bf16};
  std::int64_t heads = 2, kv_heads = 1;
  bool packed = false;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> table() {
  const OptionTexts causal{{"causal", "true"}}, blocks{{"q_block_size", "16"}, {"k_block_size", "64"}},
      tokens{{"block_size", "64"}, {"window", "30"}, {"diagonal", "true"}};
  return {{"dense", "attention", {}, causal, {f32, f16, bf16}},
          {"dense_packed", "attention", {}, {}, {f32}, 2, 2, true},
          {"dense_softcap", "attention", {}, {{"softcap", "1e10"}}},
          {"dense_splits", "attention", {}, {{"splits", "3"}}, {f16}},
          {"dense_any_order", "attention", {}, {{"deterministic", "false"}}, {bf16}, 1},
          {"blocks", "block_sparse_attention", {1, 1, 3, 2}, blocks, {f32, f16, bf16}},
          {"blocks_softcap",
           "block_sparse_attention",
           {1, 1, 3, 2},
           {{"q_block_size", "16"}, {"k_block_size", "64"}, {"softcap", "1e10"}}},
          {"blocks_of_single_queries",
           "block_sparse_attention",
           {1, 1, queries, 2},
           {{"q_block_size", "1"}, {"k_block_size", "64"}}},
          {"tokens", "nsa_selected_attention", {1, queries, 1, 2}, tokens, {f32, f16, bf16}},
          {"tokens_repeats",
           "nsa_selected_attention",
           {1, queries, 1, 2},
           {{"block_size", "64"}, {"repeats", "true"}}},
          {"tokens_scale",
           "nsa_selected_attention",
           {1, queries, 2, 2},
           {{"block_size", "64"}, {"sel_scale_gradient", "true"}},
           {f32}}};
}

// The unit of rounding: scores in f32 are the less exact, the larger they are, until one key has all the
// weight.
double unit_of(DType type, double size) {
  if (type == f32) return std::min(0x1p-10, 0x1p-20 * size * size);
  return type == f16 ? 0x1p-11 : 0x1p-8;
}

Tensor scaled(const Tensor& values, double factor, DType type) {
  Tensor result = values.to(f32);
  float* data = result.data_as<float>();
  for (std::int64_t i = 0; i < result.nelements(); ++i) data[i] *= static_cast<float>(factor);
  return result.to(type);
}

struct Call {
  Tensors inputs;
  OptionTexts options;
};

Call forward_of(const Row& row, DType type, double size) {
  Call call{{}, row.options};
  call.options.erase("deterministic");
  call.options.erase("sel_scale_gradient");
  const auto shape = [&](std::int64_t count, std::int64_t heads) {
    return row.packed ? Shape{count, heads, dim} : Shape{1, count, heads, dim};
  };
  call.inputs.emplace("q", scaled(Tensor::random_normal(shape(queries, row.heads), f32, 1), size, type));
  call.inputs.emplace("k", scaled(Tensor::random_normal(shape(keys, row.kv_heads), f32, 2), size, type));
  call.inputs.emplace("v", Tensor::random_normal(shape(keys, row.kv_heads), type, 3));
  if (row.packed) {
    call.inputs.emplace("cu_seqlens_q", Tensor::from<std::int32_t>({0, 15, queries}));
    call.inputs.emplace("cu_seqlens_k", Tensor::from<std::int32_t>({0, 57, keys}));
  }
  if (!row.lists.empty())
    call.inputs.emplace(row.options.contains("q_block_size") ? "indices" : "block_indices",
                        Tensor::random_integers(row.lists, i32, 4, 0, 3));
  return call;
}

void expect_close(const std::string& name, const Tensor& result, const Tensor& exact, double tolerance,
                  double relative) {
  const auto wrong = first_difference(result, exact, tolerance, relative);
  EXPECT_FALSE(wrong) << name << " " << *wrong;
}

void expect_gradients(const Row& row, const Call& forward, const Tensors& results, DType type, double size,
                      Target target) {
  const Operator& op = find_operator(row.op + "_backward");
  Call call = forward;
  call.options = row.options;
  call.options.erase("splits");
  int sums = 0;  // of values: of the chosen blocks, and of the window
  for (const auto& [name, result] : results) {
    if (result.nelements() == 0) continue;
    const bool is_lse = name.ends_with("lse");
    call.inputs.emplace(name, result.to(is_lse ? f32 : type));
    if (!is_lse) call.inputs.emplace("d" + name, Tensor::random_normal(result.shape(), type, 5)), ++sums;
  }
  const Options options = Options::parse(op, call.options);
  const Tensors gradients = op.run(call.inputs, options, target), exact = op.reference(call.inputs, options);
  const double unit = unit_of(type, size);
  // Gradients of scores are differences that cancel where one key has all the weight: what rounding of each
  // sum leaves is multiplied by keys and queries, and for the scale by scores.
  expect_close("dv", gradients.at("dv"), exact.at("dv"), 16 * unit, 8 * unit);
  for (const char* name : {"dq", "dk"})
    expect_close(name, gradients.at(name), exact.at(name), 16 * sums * unit * size, 16 * unit);
  if (exact.contains("dsel_scale") && exact.at("dsel_scale").nelements() > 0)
    expect_close("dsel_scale", gradients.at("dsel_scale"), exact.at("dsel_scale"), 64 * unit * size * size,
                 16 * unit);
}

class LargeScoresRows : public testing::TestWithParam<Row> {};

TEST_P(LargeScoresRows, AgreeWithDoublePrecision) {
  const Row& row = GetParam();
  const Watchdog watchdog(row.name, most_time);
  const Operator& op = find_operator(row.op);
  for (const DType type : row.types) {
    std::vector<Target> targets = test_targets();
    if (targets.size() > 1 && type == row.types.back()) targets.push_back(Target::emulated_sm90());
    for (const double size : {300., 10000.}) {
      const Call call = forward_of(row, type, size);
      const Options options = Options::parse(op, call.options);
      const Tensors exact = op.reference(call.inputs, options);
      const double unit = unit_of(type, size);
      for (const Target target : targets) {
        SCOPED_TRACE(std::string(type.name()) + " " + std::to_string(size) + " " +
                     std::string(target.name()));
        const Tensors results = op.run(call.inputs, options, target);
        for (const auto& [name, expected] : exact) {
          const bool is_lse = name.ends_with("lse");
          expect_close(name, results.at(name), expected, is_lse ? 0x1p-20 * size * size : 16 * unit,
                       is_lse ? 0x1p-20 : 8 * unit);
        }
        expect_gradients(row, call, results, type, size, target);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, LargeScoresRows, testing::ValuesIn(table()),
                         [](const auto& row) { return row.param.name; });

}  // namespace large_scores_test
}  // namespace tegula::ops

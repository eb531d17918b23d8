// Which long rows clusters that stay read once, and what comes of them.
#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/test_environment.hpp"
#include "tegula/explain.hpp"

namespace tegula::ops {
namespace staying_norms_test {

// Clusters that stay read long rows once, if these are whole pieces for all threads, or, of gradients,
// almost; others are read twice.
TEST(Norms, LongRowsAreReadOnceByClustersThatStay) {
  if (test_targets().size() == 1) GTEST_SKIP() << "no emulated GPU";
  const auto inputs = [](const std::string& name, std::int64_t rows, std::int64_t d, DType type) {
    Tensors result{{"x", Tensor::random_normal({rows, d}, type, 2)},
                   {"weight", Tensor::random_normal({d}, type, 3)}};
    if (name.find("backward") != std::string::npos)
      result.emplace("dout", Tensor::random_normal({rows, d}, type, 1));
    if (name[0] == 'l') result.emplace("bias", Tensor::random_normal({d}, type, 4));
    return result;
  };
  const std::vector<const char*> names{"rms_norm", "layer_norm", "rms_norm_backward", "layer_norm_backward"};
  const auto kernel = [&](const char* name, std::int64_t d, DType type) {
    return explain(name, inputs(name, 2, d, type), {}, Target::cuda())[0].kernel;
  };
  struct Row {
    std::int64_t rows, d;  // of which clusters have two, or three
    DType type;
  };
  for (const char* name : names) {
    const OperatorSchema& schema = find_schema(name);
    const bool of_gradient = std::string(name).ends_with("_backward");
    std::vector<Row> table{{31, 32768, bf16}, {17, 98304, f16}, {2, 131072, bf16}};
    if (of_gradient) table.insert(table.end(), {{3, 65536, f32}, {9, 63488, bf16}});
    for (const auto& [rows, d, type] : sampled<Row>(table)) {
      Tensors given = inputs(name, rows, d, type);
      // Far from zero, with an element that is farther.
      Tensor& x = given.at("x");
      for (std::int64_t j = 0; j < d; ++j) x.set({1, j}, j == 0 ? 900 : 40 + x.get({1, j}));
      const Tensors results = call_by_name(schema, given, {}, Target::emulated_sm90());
      EXPECT_EQ(faults_of(judge_call(schema, given, {}, results)), "") << name << d;
      EXPECT_NE(kernel(name, d, type).find("stays"), std::string::npos) << name << d;
    }
    for (const auto& [d, type] : {std::pair{128256, f16}, {65536, f32}})
      EXPECT_EQ(kernel(name, d, type).find("stays") != std::string::npos, of_gradient) << name << d;
    for (const auto& [d, type] : {std::pair{98312, bf16}, {98304, f32}, {163840, f16}, {81920, bf16}})
      EXPECT_EQ(kernel(name, d, type).find("stays"), std::string::npos) << name << d;
  }
}

}  // namespace staying_norms_test
}  // namespace tegula::ops

// Which tiles and threads plans choose for rows of few features, and of rows whose ends cut pieces.
#include "codegen/cuda_program.hpp"
#include "ops/pieces/kept_rows.hpp"
#include "ops/pieces/row_tiles.hpp"
#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "tegula/explain.hpp"

namespace tegula::ops {
namespace row_plans_test {

Tensor rows(std::int64_t count, std::int64_t features, DType type = bf16) {
  return Tensor::adopt(TensorRef(nullptr, type, {count, features}), nullptr);
}
Tensors of_norm(std::int64_t count, std::int64_t features) {
  return {{"x", rows(count, features)}, {"weight", rows(1, features).reshape({features})}};
}
std::string kernel_of(const char* name, const Tensors& inputs, const OptionValues& options = {}) {
  return listed_by_name(find_schema(name), inputs, options, Target::cuda()).kernels.at(0).name();
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(RowPlans, GiveEachThreadPiecesOfShortRows) {
  EXPECT_TRUE(has(kernel_of("rms_norm", of_norm(4096, 8)), "_8_256_"));
  EXPECT_TRUE(has(kernel_of("rms_norm", of_norm(4096, 20)), "_20_64_"));
  EXPECT_TRUE(has(kernel_of("rms_norm", of_norm(4096, 128)), "_128_16_"));
  EXPECT_TRUE(has(kernel_of("softmax", {{"x", rows(4096, 8)}}), "_8_256"));
  const Tensors logits{{"logits", rows(4096, 20)}, {"labels", rows(1, 4096, i32).reshape({4096})}};
  EXPECT_TRUE(has(kernel_of("cross_entropy", logits), "_t128x20")) << "a row for each thread";
}

TEST(RowPlans, GiveWarpsWholeRows) {
  for (const auto& [features, tile] : {std::pair{512, "_512_16"},
                                       {768, "_768_4"},
                                       {1024, "_1024_4"},
                                       {500, "_500_4"},
                                       {508, "_508_4"},
                                       {420, "_420_16"},
                                       {501, "_501_16"}})
    EXPECT_TRUE(has(kernel_of("softmax", {{"x", rows(4096, features)}}), tile)) << features;
  EXPECT_TRUE(has(kernel_of("softmax", {{"x", rows(4096, 500, f32)}}), "_500_16")) << "whole pieces";
  Tensors inputs = of_norm(4096, 768);
  inputs.emplace("dout", rows(4096, 768));
  EXPECT_TRUE(has(kernel_of("rms_norm_backward", inputs), "_768_7_threads224"));
}

TEST(RowPlans, OfCastsKnowRowsShorterThanAGroup) {
  const auto kernel = [](std::int64_t features, const char* scaling) {
    return kernel_of("cast_fp8", {{"x", rows(256, features)}}, {{"scaling", std::string(scaling)}});
  };
  for (const char* scaling : {"token", "block"}) {
    EXPECT_TRUE(has(kernel(20, scaling), "_narrow20"));
    EXPECT_FALSE(has(kernel(128, scaling), "_narrow"));
  }
  EXPECT_FALSE(has(kernel(20, "tensor"), "_narrow"));
}

TEST(RowPlans, GiveCutRowsAsManyWarpsAsHavePieces) {
  EXPECT_EQ(threads_with_pieces(513, {2, 3, 4}), 288);
  EXPECT_EQ(threads_with_pieces(1025, {2, 3, 4}), 352) << "544 threads would be too many";
  EXPECT_EQ(threads_with_pieces(4096, {2, 3, 4}), 0);
  EXPECT_EQ(threads_of_cut_tile(1, 4096, 2, true), std::nullopt);
  EXPECT_EQ(threads_of_cut_tile(2, 8193, 2, true), std::nullopt);
  EXPECT_EQ(threads_of_cut_tile(1, 4097, 2, false), std::nullopt);
  EXPECT_EQ(threads_of_cut_tile(1, 4097, 1, true), std::nullopt) << "few elements";
  EXPECT_EQ(threads_of_cut_row(16385, true), 96);
  EXPECT_EQ(threads_of_cut_row(16385, true, {2}), 160);
  EXPECT_EQ(threads_of_cut_row(50257, true), 416);
  EXPECT_EQ(threads_of_cut_row(50257, true, {3, 4}), 288);
  EXPECT_EQ(threads_of_cut_row(16384, true), std::nullopt);
  EXPECT_TRUE(has(kernel_of("layer_norm", of_norm(64, 4097)), "_threads288"));
  EXPECT_TRUE(has(kernel_of("softmax", {{"x", rows(64, 8193)}}), "_threads352"));
  EXPECT_TRUE(
      has(kernel_of("softmax_backward", {{"dout", rows(64, 4097)}, {"x", rows(64, 4097)}}), "_threads288"));
  const auto gradient = [](DType type) {
    return kernel_of("softmax_backward", {{"dout", rows(64, 16385, type)}, {"x", rows(64, 16385, type)}});
  };
  EXPECT_TRUE(has(gradient(bf16), "_spread96")) << gradient(bf16);
  EXPECT_TRUE(has(gradient(f32), "_spread160"))
      << "pieces of f32 take twice the registers: " << gradient(f32);
  for (const std::int64_t features : {4096, 4097, 8192})
    EXPECT_FALSE(has(kernel_of("softmax", {{"x", rows(64, features)}}), "_threads")) << features;
}

// 24 elements a thread, as many blocks as registers have room for; longer rows are laid down in shared
// memory.
TEST(RowPlans, GiveThreadsOfGradientsManyElementsOfRowsThatComeAsRuns) {
  const auto text = [](std::int64_t features, DType type, const char* name = "rms_norm_backward") {
    Tensors inputs{{"dout", rows(4096, features, type)},
                   {"x", rows(4096, features, type)},
                   {"weight", rows(1, features, type).reshape({features})}};
    if (std::string(name) == "layer_norm_backward") inputs.emplace("bias", inputs.at("weight"));
    const ListedCall listed = listed_by_name(find_schema(name), inputs, {}, Target::cuda());
    return codegen::print_cuda(Signature(listed.kernels.at(0).ir()), {90}).text;
  };
  EXPECT_TRUE(has(text(1025, bf16), "__launch_bounds__(64, 6)"));
  EXPECT_TRUE(has(text(4097, bf16), "__launch_bounds__(192, 2)"));
  EXPECT_TRUE(has(text(4097, f32), "__launch_bounds__(192, 2)"));
  EXPECT_TRUE(has(text(8193, bf16), "__launch_bounds__(352)"));
  for (const std::int64_t features : {1025, 4097, 8193}) EXPECT_FALSE(has(text(features, bf16), "lay_row<"));
  EXPECT_TRUE(has(text(16385, bf16), "tg::lay_row<16385, 544>("));
  EXPECT_TRUE(has(text(16385, bf16, "layer_norm_backward"), "tg::lay_row<16385, 704>("));
}

// Only rows of x begin anywhere; the weight is a row that begins where words do.
TEST(RowPlans, TakeWholeWordsOfTensorsOfOneRow) {
  const ListedCall listed = listed_by_name(find_schema("rms_norm"), of_norm(64, 4097), {}, Target::cuda());
  const Signature signature(listed.kernels.at(0).ir());
  const codegen::CudaProgram program = codegen::print_cuda(signature, {90});
  EXPECT_TRUE(has(program.text, "tg::load_to_end<8, false>(weight_"));
  EXPECT_TRUE(has(program.text, "tg::load_anywhere<8, false>(x_"));
  for (const auto& [position, unit] : program.aligned)
    EXPECT_EQ(signature.buffers()[static_cast<std::size_t>(position)]->name, "weight");
}

TEST(RowPlans, CutFewLongRowsOfLogitsAndThoseThatEndWithinPieces) {
  const auto kernel = [](std::int64_t count, std::int64_t classes) {
    return kernel_of("cross_entropy",
                     {{"logits", rows(count, classes)}, {"labels", rows(1, count, i32).reshape({count})}});
  };
  for (const auto& [count, classes] : {std::pair{64, 65536}, {4, 16385}, {4096, 50257}, {511, 131072}})
    EXPECT_TRUE(has(kernel(count, classes), "in_parts")) << count << " x " << classes;
  for (const auto& [count, classes] : {std::pair{512, 65536}, {64, 8192}, {64, 4097}})
    EXPECT_FALSE(has(kernel(count, classes), "in_parts")) << count << " x " << classes;
}

TEST(RowPlans, CutGradientsOfFewLongRowsOfLogits) {
  const auto kernel = [](std::int64_t count, std::int64_t classes) {
    const auto row = [&](DType type) { return rows(1, count, type).reshape({count}); };
    return kernel_of(
        "cross_entropy_backward",
        {{"dloss", row(f32)}, {"logits", rows(count, classes)}, {"labels", row(i32)}, {"lse", row(f32)}});
  };
  EXPECT_TRUE(has(kernel(64, 65536), "columns2048"));
  EXPECT_FALSE(has(kernel(4096, 65536), "columns2048"));
}

}  // namespace row_plans_test
}  // namespace tegula::ops

// What examples of tables cannot say of products: how operands are laid out, groups without rows, packed
// weights.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/pieces/plan_choices.hpp"
#include "ops/products/group_tiles.hpp"
#include "ops/quantised_gemm/weights.hpp"
#include "ops/schema/judge.hpp"
#include "ops/testing/operators.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace products_test {

void expect_right(const char* op, const Tensors& inputs, const OptionValues& options) {
  for (const Target target : test_targets()) {
    SCOPED_TRACE(std::string(op) + " " + std::string(target.name()));
    const OperatorSchema& schema = find_schema(op);
    EXPECT_EQ(faults_of(judge_call(schema, inputs, options, call_by_name(schema, inputs, options, target))),
              "");
  }
}

// The same matrix with contiguous columns.
Tensor turned(const Tensor& matrix) { return matrix.transpose(-2, -1).contiguous().transpose(-2, -1); }
Tensor scales(const Shape& shape, std::uint64_t seed) {
  return Tensor::random_integers(shape, i32, seed, 1, 9).to(f32);
}

TEST(ScaledGemm, TakesOperandsInAnyOrder) {
  const Tensor a = Tensor::random_normal({37, 200}, e4m3, 1), b = Tensor::random_normal({80, 200}, e4m3, 2);
  const Tensor of_a = scales({37, 2}, 3), of_b = scales({80, 2}, 4);
  const OptionValues rows{{"rows_b", std::int64_t{1}}};
  expect_right("scaled_gemm", {{"a", turned(a)}, {"b", b}, {"scale_a", turned(of_a)}, {"scale_b", of_b}},
               rows);
  expect_right("scaled_gemm", {{"a", a}, {"b", turned(b)}, {"scale_a", of_a}, {"scale_b", turned(of_b)}},
               rows);
  expect_right("scaled_gemm",
               {{"a", turned(a)}, {"b", turned(b)}, {"scale_a", turned(of_a)}, {"scale_b", turned(of_b)}},
               rows);
}

// Tiles of 256 rows, which rows, columns and k end in.
TEST(ScaledGemm, TakesLargeTiles) {
  const Tensor a = Tensor::random_normal({500, 440}, e4m3, 1), b = Tensor::random_normal({136, 440}, e4m3, 2);
  const Tensor of_a = scales({500, 4}, 3), of_b = scales({2, 4}, 4);
  choose_candidates("scaled_gemm.0=0");
  for (const bool side_by_side : {false, true})
    expect_right("scaled_gemm",
                 {{"a", a}, {"b", b}, {"scale_a", side_by_side ? turned(of_a) : of_a}, {"scale_b", of_b}},
                 {});
  choose_candidates("");
}

TEST(GroupedGemm, HasGroupsWithoutRows) {
  const Tensor a = Tensor::random_normal({70, 24}, f32, 1), b = Tensor::random_normal({5, 24, 40}, f32, 2);
  const Tensor dout = Tensor::random_normal({70, 40}, f32, 3), c = Tensor::random_normal({5, 24, 40}, f32, 4);
  for (const std::vector<std::int32_t>& at :
       {std::vector<std::int32_t>{0, 0, 66, 66, 70, 70}, {0, 0, 0, 70, 70, 70}, {0, 0, 31, 31, 40, 60}}) {
    expect_right("grouped_gemm", {{"a", a}, {"b", turned(b)}, {"offsets", Tensor::from(at)}}, {});
    expect_right("grouped_gemm_weights", {{"a", a}, {"dout", dout}, {"offsets", Tensor::from(at)}, {"c", c}},
                 {});
  }
}

TEST(GroupedGemm, RefusesOffsetsThatAreNone) {
  const Tensor a = Tensor::random_normal({7, 4}, f32, 1), b = Tensor::random_normal({2, 4, 4}, f32, 2);
  const auto refusal_of = [&](const std::vector<std::int32_t>& at, int most) {
    return refusal([&] { grouped_gemm(a, b, {.offsets = Tensor::from(at), .max_rows = most}); });
  };
  EXPECT_NE(refusal_of({0, 5, 4}, 0).find("never fall and end with at most 7"), std::string::npos);
  EXPECT_NE(refusal_of({0, 3, 8}, 0).find("never fall and end with at most 7"), std::string::npos);
  EXPECT_NE(refusal_of({0, 3, 7}, 3).find("'max_rows': expected at least 4"), std::string::npos);
}

// As calls do whose offsets are in the memory of a device, which the host does not read.
TEST(GroupedGemm, AssertsOffsetsWhereItRuns) {
  const lang::Kernel of_groups = lang::kernel("of_groups", [] {
    using namespace lang;
    Dim rows{"rows"}, ends{"ends"};
    lang::Tensor x = input("x", {rows}, f32), offsets = input("offsets", {ends}, i32),
                 out = output("out", {rows}, f32);
    const GroupTiles tiles(offsets, rows, Expr(3), 2);
    grid(ceildiv(rows, 8), [&](Index i) {
      Fragment own({8}, f32, 0);
      lang::copy(x.at(i * 8), own);
      lang::copy(own, out.at(i * 8));
    });
  });
  const Tensor x = Tensor::random_normal({7}, f32, 1);
  const std::pair<std::vector<std::int32_t>, const char*> wrong[] = {{{0, 3, 2}, "do not fall"},
                                                                     {{0, 3, 8}, "do not fall"},
                                                                     {{1, 3, 4}, "do not fall"},
                                                                     {{0, 4, 6}, "max_rows"}};
  for (const Target target : test_targets())
    for (const auto& [at, message] : wrong) {
      std::string said;
      try {
        compile(of_groups, target)(x, Tensor::from(at), Tensor::empty({7}, f32));
      } catch (const Error& e) { said = e.what(); }
      EXPECT_NE(said.find(message), std::string::npos) << target.name() << said;
    }
}

// Tiles of 256 rows, of which groups end in all quarters.
TEST(ScaledGroupedGemm, TakesLargeTiles) {
  const Tensor b = Tensor::random_normal({4, 136, 200}, e4m3, 2), of_b = scales({4, 2, 2}, 4);
  const Tensor a = Tensor::random_normal({500, 200}, e4m3, 1), of_a = scales({500, 2}, 3);
  const Tensor own_a = Tensor::random_normal({4, 300, 200}, e4m3, 1), of_own_a = scales({4, 300, 2}, 3);
  choose_candidates("scaled_grouped_gemm.0=0");
  for (const bool side_by_side : {false, true}) {
    const auto in_order = [&](const Tensor& of) { return side_by_side ? turned(of) : of; };
    expect_right("scaled_grouped_gemm",
                 {{"a", a},
                  {"b", b},
                  {"scale_a", in_order(of_a)},
                  {"scale_b", of_b},
                  {"offsets", Tensor::from(std::vector<std::int32_t>{0, 0, 41, 330, 499})}},
                 {});
    expect_right("scaled_grouped_gemm",
                 {{"a", own_a},
                  {"b", b},
                  {"scale_a", in_order(of_own_a)},
                  {"scale_b", of_b},
                  {"counts", Tensor::from(std::vector<std::int32_t>{0, 300, 257, 40})}},
                 {});
  }
  choose_candidates("");
}

TEST(ScaledGroupedGemmWeights, TakesRowsSideBySide) {
  const Tensor a = Tensor::random_normal({384, 40}, e4m3, 1),
               dout = Tensor::random_normal({384, 72}, e4m3, 2);
  const Tensor of_a = scales({3, 40}, 3), of_dout = scales({3, 72}, 4);
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 128, 128, 384});
  for (const bool aligned : {false, true})
    expect_right("scaled_grouped_gemm_weights",
                 {{"a", turned(a)},
                  {"dout", turned(dout)},
                  {"scale_a", turned(of_a)},
                  {"scale_dout", turned(of_dout)},
                  {"offsets", offsets}},
                 {{"aligned", aligned}});
}

// Every group has its own limits, in any order of memory.
TEST(ScaledGroupedGemmWeights, BringsRowsOfGroupsIntoBlocks) {
  const Tensor a = Tensor::random_normal({300, 140}, e4m3, 1),
               dout = Tensor::random_normal({300, 24}, e4m3, 2);
  const Tensor of_a = scales({3, 140}, 3), of_dout = scales({3, 24}, 4);
  for (const std::vector<std::int32_t>& at :
       {std::vector<std::int32_t>{0, 0, 130, 131, 131, 300}, {0, 64, 64, 120, 128, 256}, {0, 0, 0, 0, 0, 7}})
    expect_right("scaled_grouped_gemm_weights",
                 {{"a", turned(a)},
                  {"dout", dout},
                  {"scale_a", of_a},
                  {"scale_dout", of_dout},
                  {"offsets", Tensor::from(at)}},
                 {});
}

TEST(Convolution, HasPhasesOfStrides) {
  struct Case {
    Shape x, weight, dout;
    std::int64_t stride, padding, dilation, groups;
  };
  for (const Case& c : {Case{{2, 9, 12, 16}, {24, 3, 4, 8}, {2, 3, 4, 24}, 3, 1, 1, 2},
                        {{1, 8, 8, 16}, {16, 1, 1, 16}, {1, 4, 4, 16}, 2, 0, 1, 1},  // phases without taps
                        {{1, 6, 10, 8}, {8, 2, 3, 8}, {1, 3, 4, 8}, 2, 1, 2, 1},     // taps of no one phase
                        {{1, 4, 6, 4, 12}, {8, 3, 3, 2, 12}, {1, 2, 3, 3, 8}, 2, 1, 1, 1}}) {
    const Tensor x = Tensor::random_normal(c.x, bf16, 1), weight = Tensor::random_normal(c.weight, bf16, 2),
                 dout = Tensor::random_normal(c.dout, bf16, 3);
    const OptionValues options{
        {"stride", c.stride}, {"padding", c.padding}, {"dilation", c.dilation}, {"groups", c.groups}};
    const std::string name = c.x.size() == 5 ? "conv3d" : "conv2d";
    expect_right(name.c_str(), {{"x", x}, {"weight", weight}}, options);
    expect_right((name + "_backward").c_str(), {{"dout", dout}, {"x", x}, {"weight", weight}}, options);
  }
}

TEST(Convolution, MergesGroups) {
  struct Case {
    Shape x, weight, dout;
    std::int64_t stride, groups;
  };
  for (const Case& c : {Case{{2, 5, 7, 48}, {48, 3, 3, 12}, {2, 5, 7, 48}, 1, 4},
                        {{1, 8, 6, 32}, {64, 3, 3, 2}, {1, 4, 3, 64}, 2, 16},  // in phases
                        {{1, 5, 4, 32}, {64, 3, 3, 2}, {1, 3, 2, 64}, 2, 16},  // pixels are looked up
                        {{1, 4, 9, 136}, {136, 3, 3, 17}, {1, 4, 9, 136}, 1, 8},
                        {{2, 4, 4, 128}, {64, 3, 3, 16}, {2, 4, 4, 64}, 1, 8}}) {
    const Tensor x = Tensor::random_normal(c.x, bf16, 1), weight = Tensor::random_normal(c.weight, bf16, 2),
                 dout = Tensor::random_normal(c.dout, bf16, 3);
    const OptionValues options{{"stride", c.stride}, {"padding", std::int64_t{1}}, {"groups", c.groups}};
    expect_right("conv2d", {{"x", x}, {"weight", weight}}, options);
    expect_right("conv2d_backward", {{"dout", dout}, {"x", x}, {"weight", weight}}, options);
  }
}

TEST(Gemm, TakesEpilogues) {
  const Tensor a = Tensor::random_normal({37, 24}, f32, 1), b = Tensor::random_normal({24, 40}, f32, 2);
  for (const Target target : test_targets()) {
    const Tensor plain = gemm(a, b, {.target = target});
    const auto upper = [](const lang::Expr& x, const lang::Expr& row,
                          const lang::Expr& column) -> lang::Expr {
      return lang::select(column >= row, x * 2, 0.f);
    };
    const auto negative = [](const lang::Expr& x, const lang::Expr&, const lang::Expr&) -> lang::Expr {
      return -x;
    };
    const Tensor halves = gemm(a, b, {.epilogue = upper, .target = target}),
                 others = gemm(a, b, {.epilogue = negative, .target = target});
    for (std::int64_t i = 0; i < 37; ++i)
      for (std::int64_t j = 0; j < 40; ++j) {
        ASSERT_EQ(halves.get({i, j}), j >= i ? 2 * plain.get({i, j}) : 0) << target.name() << i << " " << j;
        ASSERT_EQ(others.get({i, j}), -plain.get({i, j})) << target.name();
      }
  }
}

TEST(FusedMoe, HasExpertsWithoutTokens) {
  const Tensor x = Tensor::random_normal({5, 16}, f32, 1), weights = Tensor::random_normal({5, 2}, f32, 2);
  const Tensor w1 = Tensor::random_normal({3, 16, 16}, f32, 3),
               w2 = Tensor::random_normal({3, 16, 8}, f32, 4);
  for (const std::vector<std::int32_t>& chosen :
       {std::vector<std::int32_t>(10, -1), {2, 2, 2, -1, 2, 2, 2, 2, -1, -1}})
    expect_right("fused_moe",
                 {{"x", x},
                  {"experts", Tensor::from(chosen).reshape({5, 2})},
                  {"weights", weights},
                  {"w1", w1},
                  {"w2", w2}},
                 {});
  const Tensor wrong = Tensor::from(std::vector<std::int32_t>(10, 3)).reshape({5, 2});
  EXPECT_THROW(moe_sort(wrong, 3, {.target = Target::interpreter()}), Error);
}

TEST(QuantisedGemm, TakesWeightsInBothOrders) {
  const Tensor a = Tensor::random_normal({9, 192}, bf16, 1),
               b = Tensor::random_integers({40, 96}, i32, 2, 0, 256).to(u8);
  const Tensor of_b = scales({3, 40}, 3);
  for (const Target target : test_targets()) {
    QuantisedGemm options{.group = 64, .target = target};
    const Tensor plain = quantised_gemm(a, b, of_b, options);
    options.packed = true;
    EXPECT_TRUE(equal(quantised_gemm(a, packed_weights(b), turned(of_b), options), plain)) << target.name();
  }
  EXPECT_NE(refusal([&] {
              packed_weights(Tensor::zeros({3, 33}, u8));
            }).find("multiple of 64"),
            std::string::npos);
}

// Numbers of the vector are integers beside the largest one of a word; the judge allows 5.9e-6 in norm.
TEST(QuantisedGemm, KeepsTheNumbersOfOneRow) {
  struct Case {
    WeightFormat format;
    DType scale;
    double one;
    int group;
  };
  const std::int64_t n = 48, k = 2048;
  for (const Case& c : {Case{WeightFormat::int4, f32, 1, 128}, Case{WeightFormat::mxfp4, u8, 127, 32},
                        Case{WeightFormat::nvfp4, e4m3, 1, 16}})
    for (const DType type : {bf16, f16, e4m3}) {
      const Tensor a = Tensor::random_normal({1, k}, type, 1),
                   b = Tensor::random_integers({n, k / 2}, i32, 2, 0, 256).to(u8),
                   out = quantised_gemm(
                       a, b, Tensor::full({k / c.group, n}, c.scale, c.one),
                       {.format = c.format, .group = c.group, .out_dtype = f32, .target = Target::cpu()});
      double error = 0, all = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::int64_t e = 0; e < k; ++e) sum += a.get({0, e}) * stored_weight(b, c.format, false, i, e);
        error += (out.get({0, i}) - sum) * (out.get({0, i}) - sum);
        all += sum * sum;
      }
      EXPECT_LT(std::sqrt(error / all), 5e-6) << static_cast<int>(c.format) << " " << type.name();
    }
}

// Tiles of 128 rows with 64 columns, of which the last has some, most and all of its rows outside of `a`.
TEST(QuantisedGemm, TakesTilesWithFewRowsInside) {
  choose_candidates("quantised_gemm.0=0");
  for (const std::int64_t rows : {130, 193, 250}) {
    const Tensor a = Tensor::random_normal({rows, 256}, bf16, 1), of_b = scales({2, 72}, 3),
                 b = Tensor::random_integers({72, 128}, i32, 2, 0, 256).to(u8);
    expect_right("quantised_gemm", {{"a", a}, {"b", packed_weights(b)}, {"scales", of_b}},
                 {{"packed", true}});
  }
  choose_candidates("");
}

// In splits and gated, with rows off the copy engine's, and by tiles of any rows.
TEST(Gemm, SumsInF16) {
  for (const std::int64_t k : {72, 200, 203}) {
    const Tensor a = Tensor::random_normal({70, k}, f16, 1), b = Tensor::random_normal({136, k}, f16, 2);
    for (const bool gated : {false, true})
      for (const std::int64_t splits : {1, 2})
        expect_right("gemm", {{"a", a}, {"b", b}},
                     {{"transpose_b", true},
                      {"gated", gated},
                      {"splits", std::int64_t{splits}},
                      {"sum_dtype", std::string("f16")}});
  }
  const auto refusal_of = [](DType type, DType sum) {
    const Tensor a = Tensor::zeros({8, 8}, type);
    return refusal([&] { gemm(a, a, {.sum_dtype = sum}); });
  };
  const char* const expected = "argument 'sum_dtype': expected f32, or f16 for matrices of f16";
  EXPECT_NE(refusal_of(bf16, f16).find(expected), std::string::npos) << refusal_of(bf16, f16);
  EXPECT_NE(refusal_of(f16, bf16).find(expected), std::string::npos) << refusal_of(f16, bf16);
}

TEST(Products, RefuseScalesAndPackedSizesThatDoNotFit) {
  const Tensor a = Tensor::zeros({4, 128}, bf16), bytes = Tensor::zeros({8, 64}, u8),
               of_bytes = Tensor::zeros({1, 8}, f32);
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal([&] { quantised_gemm(a, Tensor::zeros({8, 60}, u8), of_bytes); }), "argument 'b'");
  expect(refusal([&] { quantised_gemm(a, bytes, Tensor::zeros({2, 8}, f32)); }), "argument 'scales'");
  expect(refusal([&] {
           quantised_gemm(a, bytes, Tensor::zeros({4, 9}, u8), {.format = WeightFormat::mxfp4});
         }),
         "argument 'scales'");
  const Tensor rows = Tensor::zeros({4, 256}, e4m3), of_rows = Tensor::zeros({4, 2}, f32);
  expect(refusal([&] {
           scaled_gemm(rows, rows, of_rows, Tensor::zeros({1, 3}, f32));
         }),
         "argument 'scale_b'");
  expect(refusal([&] {
           scaled_gemm(rows, rows, Tensor::zeros({4, 3}, f32), Tensor::zeros({1, 3}, f32));
         }),
         "argument 'scale_a'");
  expect(refusal([&] {
           gemm_24(Tensor::zeros({4, 64}, bf16), Tensor::zeros({4, 15}, u8), a.transpose(0, 1));
         }),
         "argument 'metadata'");
}

// Rows outside are not brought where a tile is partly outside: what stands there reaches no result.
TEST(Gemm, TakesTilesWithFewRowsInside) {
  for (const DType type : {bf16, e4m3})
    for (const std::int64_t rows : {73, 97, 150}) {
      const Tensor a = Tensor::random_normal({rows, 192}, type, 1),
                   b = Tensor::random_normal({136, 192}, type, 2);
      for (const std::int64_t tile : {72, 96, 128})
        expect_right("gemm", {{"a", a}, {"b", b}},
                     {{"transpose_b", true}, {"tile_m", tile}, {"tile_n", std::int64_t{64}}});
    }
}

}  // namespace products_test
}  // namespace tegula::ops

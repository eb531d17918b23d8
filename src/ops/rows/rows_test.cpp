// What the sweep over tables does not say of operators over rows: special values, and rules about what
// tensors hold.
#include <cmath>
#include <limits>

#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/test_environment.hpp"
#include "tegula/explain.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace rows_test {

constexpr float inf = std::numeric_limits<float>::infinity();

Tensor row_of(const std::vector<float>& values) {
  return Tensor::from(values).reshape({1, static_cast<std::int64_t>(values.size())});
}

TEST(Softmax, LeavesOutInfinitiesAndIsNaNWithoutOthers) {
  for (const Target target : test_targets()) {
    const Tensor some = softmax(row_of({-inf, 2, 2, -inf}), {.target = target});
    EXPECT_EQ(some.values<float>(), (std::vector<float>{0, 0.5f, 0.5f, 0}));
    EXPECT_TRUE(std::isnan(softmax(row_of({-inf, -inf}), {.target = target}).values<float>()[0]));
  }
}

// As masks leave them: the lowest numbers of a type are not -inf.
TEST(Softmax, OfLowestNumbersIsEven) {
  Tensor x = Tensor::zeros({1, 16500}, f32);
  for (std::int64_t j = 0; j < 16500; ++j) x.set({0, j}, std::numeric_limits<float>::lowest());
  for (const Target target : test_targets())
    EXPECT_NEAR(softmax(x, {.target = target}).values<float>()[16499] * 16500, 1, 1e-4);
}

// Rows in pieces, whose first has nothing but -inf.
TEST(Softmax, PiecesMayHaveNothing) {
  const std::int64_t n = 16500;
  Tensor x = Tensor::zeros({1, n}, f32);
  for (std::int64_t j = 0; j < 5000; ++j) x.set({0, j}, -inf);
  const std::vector<float> p = softmax(x, {.target = Target::interpreter()}).values<float>();
  EXPECT_EQ(p[0], 0);
  EXPECT_NEAR(p[5000] * 11500, 1, 1e-4);
}

// A row that no block of a GPU keeps: CTAs of a cluster share it; or, of 14 pieces, a block's shared memory
// holds 13 and registers the first.
TEST(KeptRows, AreSpreadOrHeldByRegistersWhereSlotsAreTooFew) {
  if (test_targets().size() == 1) GTEST_SKIP() << "no emulated GPU";
  const Tensor x = Tensor::random_normal({1, 13 * 8192 + 24}, f16, 1),
               labels = Tensor::from(std::vector<int>{7});
  for (const char* name : {"softmax", "cross_entropy_and_gradient"}) {
    const OperatorSchema& schema = find_schema(name);
    const Tensors inputs = schema.name == std::string("softmax") ? Tensors{{"x", x}}
                                                                 : Tensors{{"logits", x}, {"labels", labels}};
    const Tensors results = call_by_name(schema, inputs, {}, Target::emulated_sm90());
    EXPECT_EQ(faults_of(judge_call(schema, inputs, {}, results)), "") << name;
  }
}

// Rows of which a processor's shared memory holds three and registers none.
TEST(LayerNorm, GradientsReadLongRowsFromSharedMemory) {
  constexpr std::int64_t d = 8200;
  const auto normal = [&](const Shape& shape, std::uint64_t seed) {
    return Tensor::random_normal(shape, bf16, seed);
  };
  const Tensors inputs{{"dout", normal({3, d}, 1)},
                       {"x", normal({3, d}, 2)},
                       {"weight", normal({d}, 3)},
                       {"bias", normal({d}, 4)}};
  const Tensors exact = formula_by_name(find_schema("layer_norm_backward"), inputs, {});
  for (const Target target : test_targets()) {
    const LayerNormGradients own =
        layer_norm_backward(inputs.at("dout"), inputs.at("x"),
                            {.weight = inputs.at("weight"), .bias = inputs.at("bias"), .target = target});
    expect_close("dx", own.dx, exact.at("dx"), exact.at("dx").to(bf16), bf16);
    expect_close("dweight", own.dweight, exact.at("dweight"), exact.at("dweight").to(f32), f32);
  }
}

// The gradients of sums and of their norms, each in its member of the result.
TEST(LayerNorm, GradientsOfSumsAreAFunction) {
  const auto normal = [](const Shape& shape, std::uint64_t seed) {
    return Tensor::random_normal(shape, f32, seed);
  };
  const Tensors inputs{{"dout", normal({5, 40}, 1)}, {"dsum", normal({5, 40}, 2)},
                       {"x", normal({5, 40}, 3)},    {"residual", normal({5, 40}, 4)},
                       {"weight", normal({40}, 5)},  {"bias", normal({40}, 6)}};
  const Tensors layer = formula_by_name(find_schema("add_layer_norm_backward"), inputs, {});
  const AddLayerNormGradients own =
      add_layer_norm_backward(inputs.at("dout"), inputs.at("dsum"), inputs.at("x"), inputs.at("residual"),
                              {.weight = inputs.at("weight"), .bias = inputs.at("bias")});
  for (const auto& [name, result] :
       Tensors{{"dx", own.dx}, {"dresidual", own.dresidual}, {"dweight", own.dweight}, {"dbias", own.dbias}})
    expect_close(name, result, layer.at(name), layer.at(name).to(f32), f32);
  Tensors without_bias = inputs;
  without_bias.erase("bias");
  const Tensors rms = formula_by_name(find_schema("add_rms_norm_backward"), without_bias, {});
  const AddRmsNormGradients other =
      add_rms_norm_backward(inputs.at("dout"), inputs.at("dsum"), inputs.at("x"), inputs.at("residual"),
                            {.weight = inputs.at("weight")});
  for (const auto& [name, result] :
       Tensors{{"dx", other.dx}, {"dresidual", other.dresidual}, {"dweight", other.dweight}})
    expect_close(name, result, rms.at(name), rms.at(name).to(f32), f32);
}

// Weights of 32 bits are read by other pieces than rows of 16 bits, which CTAs of a cluster cannot share
// then.
TEST(Norms, GradientsOfLongerWeightsStayInOneCta) {
  for (const char* name : {"rms_norm_backward", "layer_norm_backward"})
    for (const DType weight : {f32, bf16}) {
      const Tensors inputs{{"dout", Tensor::empty({2, 114688}, bf16)},
                           {"x", Tensor::empty({2, 114688}, bf16)},
                           {"weight", Tensor::empty({114688}, weight)}};
      const std::string kernel = explain(name, inputs, {}, Target::cuda())[0].kernel;
      EXPECT_EQ(kernel.find("cluster") == std::string::npos, weight == f32) << kernel;
    }
}

// A block holds the sums of rows of 16 bits whose tensors shared memory has room for, beside the weights.
TEST(Norms, PlanGradientsOfLongRows) {
  const auto is_held = [](const char* name, std::int64_t d, DType type, DType weight, Target target) {
    const std::map<std::string, Tensor> inputs{{"dout", Tensor::empty({2, d}, type)},
                                               {"x", Tensor::empty({2, d}, type)},
                                               {"weight", Tensor::empty({d}, weight)}};
    const std::string kernel = explain(name, inputs, {}, target)[0].kernel;
    return kernel.find("threads512") != std::string::npos;
  };
  for (const char* name : {"rms_norm_backward", "layer_norm_backward"}) {
    EXPECT_TRUE(is_held(name, 20480, bf16, bf16, Target::cuda())) << name;
    EXPECT_TRUE(is_held(name, 20480, bf16, f32, Target::cuda())) << name;
    EXPECT_FALSE(is_held(name, 20480, f32, bf16, Target::cuda())) << name;
    EXPECT_FALSE(is_held(name, 20480, bf16, bf16, Target::cuda_sm80())) << name;
  }
}

// They are differences of equal numbers, times 1 / sqrt(eps).
TEST(LayerNorm, GradientsOfOneFeatureAreZero) {
  const auto normal = [](const Shape& shape, std::uint64_t seed) {
    return Tensor::random_normal(shape, f32, seed);
  };
  Tensors inputs{{"dout", normal({37, 1}, 1)},
                 {"x", normal({37, 1}, 2)},
                 {"weight", normal({1}, 3)},
                 {"bias", normal({1}, 4)}};
  for (const Target target : test_targets()) {
    const Tensor dx = call_by_name(find_schema("layer_norm_backward"), inputs, {}, target).at("dx");
    EXPECT_EQ(first_difference(dx, Tensor::zeros({37, 1}, f32)), std::nullopt) << target.name();
  }
  inputs.emplace("residual", normal({37, 1}, 5)), inputs.emplace("dsum", normal({37, 1}, 6));
  for (const Target target : test_targets()) {
    const Tensor dx = call_by_name(find_schema("add_layer_norm_backward"), inputs, {}, target).at("dx");
    EXPECT_EQ(first_difference(dx, inputs.at("dsum")), std::nullopt) << target.name();
  }
}

// Rows that end within pieces of 16 bytes: whole ones of a tile, or one of each block in several tiles.
TEST(CrossEntropy, PlansGradientsOfOddClasses) {
  const auto kernel = [](std::int64_t classes) {
    const std::map<std::string, Tensor> inputs{{"dloss", Tensor::empty({8}, f32)},
                                               {"logits", Tensor::empty({8, classes}, bf16)},
                                               {"labels", Tensor::empty({8}, i32)},
                                               {"lse", Tensor::empty({8}, f32)}};
    return explain("cross_entropy_backward", inputs, {}, Target::cuda())[0].kernel;
  };
  for (const std::int64_t classes : {2, 50, 57, 64, 65, 1023, 1025, 50257}) {
    const std::string name = kernel(classes);
    EXPECT_EQ(name.find("columns2048") != std::string::npos, classes > 1024) << name;
  }
}

TEST(CrossEntropy, IgnoresLabelsAndRefusesOthers) {
  const Tensor x = Tensor::random_normal({3, 5}, f32, 1);
  for (const Target target : test_targets()) {
    const auto call = [&](const std::vector<int>& labels) {
      return cross_entropy_and_gradient(x, Tensor::from(labels), {.target = target});
    };
    const CrossEntropyAndGradientResult result = call({4, -100, 0});
    EXPECT_EQ(result.loss.values<float>()[1], 0);
    for (int j = 0; j < 5; ++j) EXPECT_EQ(result.dlogits.get({1, j}), 0);
    EXPECT_NEAR(result.loss.values<float>()[0], result.lse.values<float>()[0] - x.get({0, 4}), 1e-6);
    EXPECT_THROW(call({4, 5, 0}), ProgramError);
    EXPECT_THROW(call({4, -1, 0}), ProgramError);
  }
}

// As PyTorch's logsumexp and cross_entropy are: of tiles of whole rows, of rows in pieces, and of those that
// a block holds.
TEST(CrossEntropy, OfARowWithoutANumberIsNaNAndItsLseMinusInfinity) {
  for (const std::int64_t classes : {5, 100, 4096, 20000})
    for (const float smoothing : {0.f, 0.1f})
      for (const Target target : test_targets()) {
        SCOPED_TRACE(fmt::format("{} classes, {}", classes, target.name()));
        const Tensor labels = Tensor::from(std::vector<int>{1, 1});
        Tensor x = Tensor::random_normal({2, classes}, f32, 1);
        for (std::int64_t j = 0; j < classes; ++j) x.set({0, j}, -inf);
        const auto loss = cross_entropy(x, labels, {.label_smoothing = smoothing, .target = target});
        const auto both =
            cross_entropy_and_gradient(x, labels, {.label_smoothing = smoothing, .target = target});
        const Tensor gradient =
            cross_entropy_backward(Tensor::from(std::vector<float>{1, 1}), x, labels, loss.lse,
                                   {.label_smoothing = smoothing, .target = target});
        EXPECT_TRUE(loss.lse.get({0}) == -inf && both.lse.get({0}) == -inf);
        EXPECT_TRUE(std::isnan(loss.loss.get({0})) && std::isnan(both.loss.get({0})));
        for (const std::int64_t j : {std::int64_t(0), classes - 1}) {
          EXPECT_TRUE(std::isnan(both.dlogits.get({0, j})) && std::isnan(gradient.get({0, j}))) << j;
          EXPECT_TRUE(std::isfinite(both.dlogits.get({1, j})) && std::isfinite(gradient.get({1, j}))) << j;
        }
      }
}

// As many classes as the largest vocabularies have.
TEST(CrossEntropy, OfTheLargestVocabularies) {
  constexpr std::int64_t classes = 262144;
  const Tensors inputs{{"logits", Tensor::random_normal({2, classes}, bf16, 1)},
                       {"labels", Tensor::from(std::vector<int>{classes - 1, -100})}};
  for (const char* name : {"cross_entropy", "cross_entropy_and_gradient"}) {
    const OperatorSchema& schema = find_schema(name);
    for (const Target target : test_targets()) {
      if (target == Target::interpreter()) continue;
      const Tensors results = call_by_name(schema, inputs, {}, target);
      EXPECT_EQ(faults_of(judge_call(schema, inputs, {}, results)), "") << name << ' ' << target.name();
    }
  }
}

// One scale has no shape: only what lies apart, or is too little for a tile, is met by rows and columns.
TEST(CastFp8, WithOneScaleTakesWhatLiesTogetherAsTiles) {
  const Tensor all = Tensor::random_normal({37, 401}, bf16, 1);
  const OperatorSchema& schema = find_schema("cast_fp8");
  const OptionValues options{{"scaling", parse_option(schema, "scaling", "tensor")}};
  const auto check = [&](const TensorRef& x, bool as_tiles) {
    const Tensors inputs{{"x", Tensor::adopt(x, std::make_shared<Tensor>(all))}};
    EXPECT_EQ(explain("cast_fp8", inputs, {{"scaling", "tensor"}}, Target::cuda())[0].kernel.find("_row") !=
                  std::string::npos,
              as_tiles)
        << describe(x);
    for (const Target target : test_targets())
      EXPECT_EQ(faults_of(judge_call(schema, inputs, options, call_by_name(schema, inputs, options, target))),
                "")
          << describe(x) << target.name();
  };
  check(all, true);
  check(all.ref().slice(0, 3, 30), true);
  check(all.ref().slice(1, 0, 400), false);
  check(all.ref().slice(0, 0, 2), false);
}

TEST(Rope, RefusesPositionsOutsideOfItsTables) {
  const Tensor x = Tensor::random_normal({2, 1, 4}, f32, 1), angles = Tensor::zeros({3, 2}, f32);
  const auto call = [&](const std::vector<int>& positions) {
    return rope(x, angles, angles, {.positions = Tensor::from(positions), .target = Target::interpreter()});
  };
  EXPECT_EQ(call({2, 0}).shape(), x.shape());
  EXPECT_THROW(call({3, 0}), ProgramError);
  EXPECT_THROW(call({0, -1}), ProgramError);
}

TEST(Rope, TurnsBack) {
  const Tensor x = Tensor::random_normal({5, 2, 6}, f32, 1);
  Tensor cosine = Tensor::zeros({5, 2}, f32), sine = Tensor::zeros({5, 2}, f32);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 2; ++j)
      cosine.set({i, j}, std::cos(i / (j + 1.))), sine.set({i, j}, std::sin(i / (j + 1.)));
  for (const RopePairing pairing : {RopePairing::halves, RopePairing::neighbours}) {
    const Tensor there = rope(x, cosine, sine, {.pairing = pairing, .target = Target::interpreter()});
    const Tensor back =
        rope(there, cosine, sine, {.pairing = pairing, .inverse = true, .target = Target::interpreter()});
    expect_close("turned back", back, x, x, f32);
    EXPECT_FALSE(equal(there, x));
  }
}

TEST(CastFp8, KeepsZerosAndRoundsScalesUp) {
  Tensor x = Tensor::zeros({2, 200}, f32);
  x.set({1, 3}, 448), x.set({1, 130}, -449);
  for (const Target target : test_targets())
    for (const bool power : {false, true}) {
      const CastFp8Result result = cast_fp8(x, {.power_of_two = power, .target = target});
      EXPECT_EQ(result.out.get({0, 0}), 0);
      EXPECT_GT(result.scale.get({0, 0}), 0);
      EXPECT_EQ(result.scale.get({1, 0}), 1);
      EXPECT_EQ(result.out.get({1, 3}), 448);
      EXPECT_EQ(result.scale.get({1, 1}), power ? 2 : 449 * (1.f / 448));
      EXPECT_EQ(result.out.get({1, 130}), power ? -224 : -448);
    }
}

// As products on tensor cores want scales: tokens beside each other.
TEST(CastFp8, WritesScalesOfAnyStrides) {
  const Tensor x = Tensor::random_normal({5, 256}, f32, 1), columns = Tensor::zeros({2, 5}, f32);
  cast_fp8(x, {.scale = columns.ref().transpose(0, 1), .target = Target::interpreter()});
  const Tensor rows = cast_fp8(x, {.target = Target::interpreter()}).scale;
  EXPECT_TRUE(equal(columns.transpose(0, 1).contiguous(), rows));
}

// Rows 0 to 59 and 60 to 199: the second group begins with block 60 / 128 + 1.
TEST(CastFp8, GivesEachGroupBlocksOfItsOwn) {
  Tensor x = Tensor::zeros({200, 130}, f32);
  x.set({59, 1}, 896), x.set({60, 1}, 448), x.set({199, 129}, 224);
  const Tensor offsets = Tensor::from(std::vector<int>{0, 60, 200});
  for (const Target target : test_targets()) {
    const CastFp8Result result =
        cast_fp8(x, {.offsets = offsets, .scaling = Fp8Scaling::block, .target = target});
    EXPECT_EQ(result.scale.shape(), (Shape{3, 2}));
    EXPECT_EQ(result.scale.get({0, 0}), 2);
    EXPECT_EQ(result.scale.get({1, 0}), 1);
    EXPECT_EQ(result.scale.get({2, 1}), 0.5);
    const Tensor back = uncast_fp8(result.out, result.scale,
                                   {.offsets = offsets, .scaling = Fp8Scaling::block, .target = target});
    EXPECT_TRUE(equal(back, x));
    const CastFp8Result padded = cast_fp8(x, {.offsets = offsets, .group_rows = 150, .target = target});
    EXPECT_EQ(padded.out.shape(), (Shape{2, 150, 130}));
    EXPECT_EQ(padded.out.get({0, 59, 1}), 448);
    EXPECT_EQ(padded.out.get({0, 60, 1}), 0);
    EXPECT_EQ(padded.out.get({1, 0, 1}), 448);
    EXPECT_EQ(padded.scale.get({1, 139, 1}), 0.5);
  }
}

TEST(CastFp8, RefusesGroupsThatAreNone) {
  const Tensor x = Tensor::zeros({200, 130}, f32);
  const auto call = [&](const std::vector<int>& offsets, Fp8Scaling scaling, std::int64_t group_rows) {
    return cast_fp8(x, {.offsets = Tensor::from(offsets),
                        .scaling = scaling,
                        .group_rows = group_rows,
                        .target = Target::interpreter()});
  };
  for (const std::vector<int>& offsets : {std::vector<int>{0, 90, 60, 200}, {1, 60, 200}, {0, 60, 201}}) {
    EXPECT_THROW(call(offsets, Fp8Scaling::block, 0), ArgumentError);
    EXPECT_THROW(call(offsets, Fp8Scaling::token, 200), ArgumentError);
  }
  EXPECT_THROW(call({0, 60, 200}, Fp8Scaling::token, 139), ArgumentError);
  EXPECT_EQ(refusal([&] {
              call({0, 60, 200}, Fp8Scaling::token, 0);
            }),
            "cast_fp8, argument 'offsets': expected scaling=block or group_rows: groups share no scale of "
            "tokens, given i32 [3] strides [1]; leave offsets out");
}

TEST(Hadamard, MatricesAreOrthogonal) {
  for (const int m : {1, 12, 20, 28}) {
    const auto signs = hadamard_signs(m);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < m; ++j) {
        int product = 0;
        for (int k = 0; k < m; ++k) product += signs[i][k] * signs[j][k];
        EXPECT_EQ(product, i == j ? m : 0) << m << " " << i << " " << j;
      }
  }
}

TEST(Hadamard, RefusesOtherLengths) {
  EXPECT_EQ(refusal([] {
              hadamard(Tensor::zeros({2, 24 * 3}, f32));
            }),
            "hadamard, argument 'x': expected 2^k, 12*2^k, 20*2^k or 28*2^k features, up to 32768, given f32 "
            "[2, 72] "
            "strides [72, 1]; pad the rows");
}

}  // namespace rows_test
}  // namespace tegula::ops

#include "tegula/ops/rms_norm.hpp"

#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace rms_norm_test {

TEST(RmsNorm, AgreesWithTheFormula) {
  for (const Target target : test_targets())
    for (const Shape& shape : {Shape{37, 100}, Shape{2, 7, 512}, Shape{1, 1}, Shape{0, 8}, Shape{5}})
      for (const DType type : {f32, f16, bf16})
        for (const bool weighted : {false, true}) {
          const Planted x(Tensor::random_normal(shape, type, 1)),
              weight(Tensor::random_normal({shape.back()}, f32, 2)), out(shape, type);
          // An output of more dimensions has to be one tensor of rows.
          const Tensor own = shape.size() > 2 ? Tensor::empty(shape, type) : out.inside;
          RmsNorm options{.eps = 0.01f, .out = own, .target = target};
          Tensors inputs{{"x", x.inside}};
          if (weighted) options.weight = weight.inside, inputs.emplace("weight", weight.inside);
          rms_norm(x.inside, options);
          const Tensor exact = formula_by_name(find_schema("rms_norm"), inputs, {{"eps", 0.01}}).at("out");
          expect_close(describe(shape), own, exact, exact.to(type), type);
          EXPECT_TRUE(out.is_clean_outside());
        }
}

TEST(RmsNorm, RefusesWrongCalls) {
  const Tensor x = Tensor::zeros({4, 6}, f32);
  const auto refused = [&](RmsNorm options) { return refusal([&] { rms_norm(x, options); }); };
  EXPECT_EQ(
      refused({.weight = Tensor::zeros({5}, f32)}),
      "rms_norm, argument 'weight': expected [d] with d = 6, as x, given f32 [5] strides [1]; give it that "
      "shape");
  EXPECT_EQ(
      refused({.weight = Tensor::zeros({6}, i32)}),
      "rms_norm, argument 'weight': expected dtype f32, f16 or bf16, given i32 [6] strides [1]; convert it");
  EXPECT_EQ(refused({.eps = 0}),
            "rms_norm, argument 'eps': expected a positive finite number, given 0; give a positive number");
  EXPECT_EQ(
      refused({.out = x.ref()}),
      "rms_norm, argument 'out': expected its own memory, not that of x, given f32 [4, 6] strides [6, 1]; "
      "pass another tensor");
  EXPECT_EQ(
      refused({.out = Tensor::zeros({4, 5}, f32)}),
      "rms_norm, argument 'out': expected [..., d] = [4, 6], given f32 [4, 5] strides [5, 1]; give it that "
      "shape");
}

}  // namespace rms_norm_test
}  // namespace tegula::ops

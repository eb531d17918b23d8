#include "ops/registered.hpp"

#include "ops/common/arguments.hpp"
#include "ops/gemm/call.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops {

namespace {

GemmOptions parsed(const Tensors& inputs, const Options& options, Target target = Target::automatic()) {
  GemmOptions result;
  result.transpose_a = options.boolean("transpose_a"), result.transpose_b = options.boolean("transpose_b");
  result.bias = optional_ref(inputs, "bias");
  for (Activation activation : {Activation::none, Activation::relu, Activation::gelu, Activation::silu})
    if (options.text("activation") == name_of(activation)) result.activation = activation;
  if (options.has("out_dtype"))
    for (DType type : float_types)
      if (options.text("out_dtype") == type.name()) result.out_dtype = type;
  result.scale = options.real("scale");
  result.tiles = {options.small_integer("tile_m"), options.small_integer("tile_n"),
                  options.small_integer("tile_k")};
  result.target = target;
  return result;
}

Case example(const std::string& name, Shape a, Shape b, DType type, OptionTexts options = {},
             std::int64_t bias = 0) {
  return {name, std::move(options), [=](std::uint64_t seed) {
            Tensors inputs{{"a", Tensor::random_normal(a, type, seed)},
                           {"b", Tensor::random_normal(b, type, seed + 1)}};
            if (bias > 0) inputs.emplace("bias", Tensor::random_normal({bias}, f32, seed + 2));
            return inputs;
          }};
}

double inner_extent(const Tensors& inputs, const Options& options) {
  return static_cast<double>(required(inputs, "a").size(options.boolean("transpose_a") ? -2 : -1));
}

Work work_of(const Tensors& inputs, const Options& options) {
  const GemmCall call = prepare_gemm(required(inputs, "a"), required(inputs, "b"), parsed(inputs, options));
  const auto out = static_cast<double>(nelements(call.out_shape));
  return {2 * out * inner_extent(inputs, options), bytes_of(inputs) + out * call.kernel.out.bytes()};
}

void describe_gemm(Operator& op) {
  op.name = "gemm";
  op.summary = "matrix product with bias and activation";
  op.inputs = {{"a", "[m, k] or [batch, m, k]", gemm_types, true, "left matrix"},
               {"b", "[k, n] or [batch, k, n]", gemm_types, true, "right matrix"},
               {"bias", "[n]", float_types, false, "added to every row"}};
  op.outputs = {{"out", "[m, n] or [batch, m, n]", "out_dtype, or that of a, bf16 for fp8"}};
  op.options = {
      {"transpose_a", OptionType::boolean, "false", "a is [k, m]", {}},
      {"transpose_b", OptionType::boolean, "false", "b is [n, k]", {}},
      {"activation", OptionType::choice, "none", "applied to the sums", {"none", "relu", "gelu", "silu"}},
      {"scale", OptionType::real, "1", "factor of the product", {}},
      {"out_dtype", OptionType::choice, "", "dtype of the result", {"f32", "f16", "bf16"}},
      {"tile_m", OptionType::integer, "0", "rows of a tile, 0: planned", {}},
      {"tile_n", OptionType::integer, "0", "columns of a tile, 0: planned", {}},
      {"tile_k", OptionType::integer, "0", "inner extent of a tile, 0: planned", {}}};
  op.check_cases = {
      example("square", {64, 64}, {64, 64}, f32),
      example("ragged_bias_gelu", {37, 45}, {45, 29}, f32, {{"activation", "gelu"}}, 29),
      example("transposed_f16", {33, 40}, {17, 33}, f16,
              {{"transpose_a", "true"}, {"transpose_b", "true"}, {"out_dtype", "f32"}}),
      example("along_k_e4m3", {140, 200}, {72, 200}, e4m3, {{"transpose_b", "true"}, {"scale", "0.25"}}),
      example("across_k_e5m2", {70, 90}, {90, 40}, e5m2, {{"out_dtype", "f32"}}, 40),
      example("batched_bf16", {2, 20, 24}, {24, 18}, bf16, {{"activation", "silu"}})};
  op.bench_cases = {example("512", {512, 512}, {512, 512}, f32),
                    example("1024", {1024, 1024}, {1024, 1024}, f32),
                    example("2048", {2048, 2048}, {2048, 2048}, f32),
                    example("1024_bf16", {1024, 1024}, {1024, 1024}, bf16)};
}

}  // namespace

Operator registered_gemm() {
  Operator op;
  describe_gemm(op);
  op.run = [](const Tensors& in, const Options& options, Target target) {
    return Tensors{{"out", gemm(required(in, "a"), required(in, "b"), parsed(in, options, target))}};
  };
  op.reference = [](const Tensors& in, const Options& options) {
    return Tensors{{"out", reference::gemm(required(in, "a"), required(in, "b"), parsed(in, options))}};
  };
  op.kernels = [](const Tensors& in, const Options& options, Target target) {
    const GemmCall call = prepare_gemm(required(in, "a"), required(in, "b"), parsed(in, options, target));
    return std::vector{gemm_kernel(call.kernel)};
  };
  op.work = work_of;
  op.tolerance = [](const Tensors& in, const Options& options) {
    const double inner = inner_extent(in, options);
    DType type = required(in, "a").dtype();
    if (options.has("out_dtype") && options.text("out_dtype") == "f32") type = f32;
    // Tensor cores keep as many bits of a sum of fp8 products as f16 has, or a few more.
    if (required(in, "a").dtype().bits() == 8) type = type == f32 ? f16 : bf16;
    Operator::Tolerance tolerance = rounding_tolerance(type, inner);
    tolerance.absolute *= std::sqrt(std::max(inner, 1.0));
    return tolerance;
  };
  return op;
}

}  // namespace tegula::ops

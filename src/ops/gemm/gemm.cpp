#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/common/arguments.hpp"
#include "ops/common/functions.hpp"
#include "ops/common/plan.hpp"
#include "ops/gemm/call.hpp"
#include "ops/gemm/plan.hpp"
#include "runtime/processors.hpp"

namespace tegula::ops {

namespace {

TensorRef with_batch(const TensorRef& tensor) {
  if (tensor.rank() == 3) return tensor;
  TensorRef result = tensor;
  result.shape.insert(result.shape.begin(), 1);
  result.strides.insert(result.strides.begin(), 0);
  return result;
}

// A matrix whose rows lie side by side is read as it is; one whose columns do as its transpose.
void choose_order(const Arguments& args, const char* name, TensorRef& tensor, bool& transposed) {
  const bool rows = tensor.size(2) <= 1 || tensor.stride(2) == 1;
  const bool columns = tensor.size(1) <= 1 || tensor.stride(1) == 1;
  args.check(rows || columns || nelements(tensor) == 0, name, "a matrix with stride 1 along rows or columns",
             tensor, "pass a contiguous copy");
  if (rows) return;
  tensor = tensor.transpose(1, 2);
  transposed = !transposed;
}

void check_tiles(const Arguments& args, const GemmTiles& tiles) {
  for (int extent : {tiles.m, tiles.n, tiles.k})
    args.check(extent >= 0 && extent <= 4096, "tiles", "extents from 1 to 4096, or 0 for the plan's choice",
               worded("{}", extent), "leave them out");
}

// Tensor cores take 8-bit operands that lie along k; others are widened, exactly, where they are copied.
DType tile_type(const GemmKernel& kernel, const Target& target, bool on_gpu) {
  if (!on_gpu || kernel.type.bits() != 8) return multiplied_type(kernel.type, on_gpu);
  const bool along_k = !kernel.transpose_a && kernel.transpose_b;
  return along_k && target != Target::cuda_sm80() ? kernel.type : f16;
}

// The common number of batches; a tensor with one batch is repeated.
std::int64_t join_batches(const Arguments& args, TensorRef& a, TensorRef& b) {
  const std::int64_t of_a = a.size(0), of_b = b.size(0), batch = of_a == 1 ? of_b : of_a;
  args.check(of_b == batch || of_b == 1, "b", worded("{} batches, as a, or one", of_a), b,
             "give both the same number of batches");
  a = a.expand({batch, a.size(1), a.size(2)});
  b = b.expand({batch, b.size(1), b.size(2)});
  return batch;
}

}  // namespace

GemmCall prepare_gemm(const TensorRef& a, const TensorRef& b, const GemmOptions& options) {
  const Arguments args("gemm");
  args.check_tensor("a", a, gemm_types, {2, 3});
  args.check_tensor("b", b, {a.dtype}, {2, 3});
  check_tiles(args, options.tiles);
  GemmCall call;
  call.a = with_batch(a), call.b = with_batch(b);
  const std::int64_t m = call.a.size(options.transpose_a ? 2 : 1),
                     k = call.a.size(options.transpose_a ? 1 : 2);
  const std::int64_t n = call.b.size(options.transpose_b ? 1 : 2),
                     k_of_b = call.b.size(options.transpose_b ? 2 : 1);
  args.check(k == k_of_b, "b", worded("an inner extent of {}, as a", k), b,
             "check transpose_a and transpose_b");
  const std::int64_t batch = join_batches(args, call.a, call.b);
  if (options.bias) {
    args.check_tensor("bias", *options.bias, float_types, {1});
    args.check(options.bias->size(0) == n, "bias", worded("[n] = [{}]", n), *options.bias,
               "give it one element a column");
  }
  GemmKernel& kernel = call.kernel;
  kernel.type = a.dtype;
  kernel.out = options.out_dtype.value_or(options.out           ? options.out->dtype
                                          : a.dtype.bits() == 8 ? bf16
                                                                : a.dtype);
  args.check(std::isfinite(options.scale), "scale", "a finite factor", fmt::format("{}", options.scale),
             "give 1 where there is none");
  args.check(std::find(float_types.begin(), float_types.end(), kernel.out) != float_types.end(), "out_dtype",
             "f32, f16 or bf16", std::string(kernel.out.name()), "convert the result");
  kernel.transpose_a = options.transpose_a, kernel.transpose_b = options.transpose_b;
  choose_order(args, "a", call.a, kernel.transpose_a);
  choose_order(args, "b", call.b, kernel.transpose_b);
  if (options.bias) kernel.bias = options.bias->dtype;
  kernel.scaled = options.scale != 1;
  kernel.activation = options.activation;
  const bool on_gpu = runs_on_gpu(options.target, a.device);
  kernel.compute = tile_type(kernel, target_for(options.target, a.device), on_gpu);
  const auto plan = [&](const GemmProblem& problem) {
    return on_gpu ? plan_gemm_on_gpu(problem, kernel.compute, options.tiles)
                  : plan_gemm(problem, options.tiles);
  };
  // Whoever asks for a GPU's program of tensors elsewhere sees that of an H100.
  const int processors = on_gpu && a.device.is_cpu() ? gpu_processors : processors_of(a.device);
  kernel.tiles = plan({batch, m, n, k, processors});
  call.out_shape = a.rank() == 2 && b.rank() == 2 ? Shape{m, n} : Shape{batch, m, n};
  return call;
}

Tensor gemm(const TensorRef& a, const TensorRef& b, const GemmOptions& options) {
  const GemmCall call = prepare_gemm(a, b, options);
  Tensor out =
      Arguments("gemm").output("out", options.out, call.out_shape, call.kernel.out, "the result", a.device);
  if (nelements(out) == 0) return out;
  std::vector<Argument> values{call.a, call.b, with_batch(out.ref())};
  if (options.bias) values.emplace_back(*options.bias);
  if (call.kernel.scaled) values.emplace_back(options.scale);
  compiled(call.kernel, target_for(options.target, a.device), gemm_kernel).call_in_order(values);
  return out;
}

}  // namespace tegula::ops

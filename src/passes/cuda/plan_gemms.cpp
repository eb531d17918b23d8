#include "passes/cuda/plan_gemms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/plan_wgmma.hpp"

namespace tegula::passes {

using namespace ir;
using layout::Division;

namespace {

// Warps first divide the rows, so that the rows of a product stay within a warp; what is left divides
// columns.
Division divide(std::int64_t m, std::int64_t n, std::int64_t units, std::int64_t rows_of_unit) {
  const std::int64_t wanted = (m + rows_of_unit - 1) / rows_of_unit;
  Division parts{1, units};
  for (std::int64_t along = 1; along <= units; ++along) {
    if (units % along == 0 && along <= wanted) parts = {along, units / along};
  }
  // More parts of the columns than there are blocks of eight: the rest of the warps would have nothing.
  return n % (8 * parts.along_n) == 0 ? parts : Division{units, 1};
}

Reason reason_of_mma(const Gemm& gemm, int threads) {
  if (!has_tensor_cores(gemm.a.buffer->type)) return reason_of_types(gemm);
  if (threads % 32 != 0)
    return {fmt::format("{} threads are no warps", threads), "use a multiple of 32 threads"};
  return {fmt::format("the sum has {} columns, no multiple of eight", gemm.c.extent(1)),
          "use tiles with a multiple of eight columns"};
}

}  // namespace

bool has_tensor_cores(DType type) { return type.is_floating() && type.bits() <= 16; }

bool needs_promotion(const Gemm& gemm, const GemmPlan& plan) {
  return plan.instruction == GemmInstruction::wgmma && gemm.a.buffer->type.bits() == 8 && !gemm.overwrite &&
         gemm.hints.accumulation == Accumulation::promoted;
}

int accumulators(const Gemm& gemm, const GemmPlan& plan) {
  const std::int64_t rows = gemm.c.extent(plan.swapped ? 1 : 0) / (64 * plan.parts.along_m);
  return static_cast<int>(rows * static_cast<std::int64_t>(plan.columns.size()));
}

std::pair<View, View> instruction_operands(const Gemm& gemm, const GemmPlan& plan) {
  if (!plan.swapped) return {gemm.a, gemm.b};
  return {transposed(gemm.b), transposed(gemm.a)};
}

bool is_matrix(const View& view) {
  if (view.rank() != 2 || view.buffer->rank() != 2 || view.shape.size() != 2) return false;
  for (std::size_t d = 0; d < 2; ++d) {
    const ViewDim& dim = view.dims[d];
    if (dim.axis < 0 || !is_constant(dim.offset, 0) || !equal(view.shape[d], view.buffer->shape[d]))
      return false;
    if (view.extent(dim.axis) != view.buffer->extent(static_cast<int>(d))) return false;
  }
  return true;
}

bool is_transposed(const View& view) {
  const auto first =
      std::find_if(view.dims.begin(), view.dims.end(), [](const ViewDim& d) { return d.axis >= 0; });
  return first != view.dims.end() && first->axis == 1;
}

GemmPlan plan_gemm(const Gemm& gemm, int threads, const CudaTarget& target) {
  const std::int64_t m = gemm.c.extent(0), n = gemm.c.extent(1), k = gemm.a.extent(1);
  const DType type = gemm.a.buffer->type;
  GemmPlan plan;
  if (target.has_wgmma() && !gemm.hints.by_warp) {
    const auto by_groups = plan_wgmma(gemm, threads);
    if (by_groups) return *by_groups;
    plan.fallback = by_groups.reason();
  }
  if (has_tensor_cores(type) && threads % 32 == 0 && n % 8 == 0) {
    plan.instruction = GemmInstruction::mma_sync;
    plan.parts = divide(m, n, threads / 32, 16);
    plan.accumulator = layout::mma_accumulator(m, n, plan.parts);
    plan.a_in_registers = gemm.a.buffer->space == Space::fragment && is_whole(gemm.a) && type.bits() == 16 &&
                          k % 16 == 0 && plan.parts.along_n == 1;
    if (k % 16 == 0) plan.operand_a = layout::mma_operand_a(m, k, plan.parts);
    return plan;
  }
  plan.fallback = reason_of_mma(gemm, threads);
  const std::int64_t vector = n % 4 == 0 && m * n >= 4 * threads ? 4 : 1;
  plan.accumulator = layout::blocked(threads, {m, n}, vector);
  return plan;
}

}  // namespace tegula::passes

#include "passes/cuda/plan_gemms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/visit.hpp"
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
  if (!is_on_tensor_cores(gemm)) return reason_of_types(gemm);
  if (threads % 32 != 0)
    return {fmt::format("{} threads are not whole warps", threads), "use a multiple of 32 threads"};
  return {fmt::format("the sum has {} columns, which is not a multiple of eight", gemm.c.extent(1)),
          "use tiles with a multiple of eight columns"};
}

// Rows of a thread that are worth loading its columns for, if it can have so many.
constexpr std::int64_t wanted_rows = 4;
constexpr int elements_of_vector = 4;

// Whether a thread reads vectors of the operand, and the sum has its own type.
bool is_read_by_vectors(const View& operand, DType sum) {
  const DType type = operand.buffer->type;
  const bool counts = !type.is_floating() && !type.is_boolean() && type.bits() == 8;
  return operand.buffer->space == Space::shared && is_matrix(operand) && sum.bits() == 32 &&
         (type == sum || (counts && !sum.is_floating()));
}

// The fewest lanes for columns that leave a thread as many rows.
layout::OwnBlock own_block(const Gemm& gemm, std::int64_t threads) {
  const std::int64_t m = gemm.c.extent(0), n = gemm.c.extent(1);
  const DType sum = gemm.c.buffer->type;
  if (!is_read_by_vectors(gemm.a, sum) || !is_read_by_vectors(gemm.b, sum)) return {};
  if (gemm.a.extent(1) % elements_of_vector != 0 || threads % 32 != 0) return {};
  layout::OwnBlock own;
  for (const std::int64_t lanes : {8, 16, 32}) {
    const std::int64_t groups = threads / lanes;
    if (m % groups != 0 || n % lanes != 0 || own.rows >= wanted_rows) continue;
    own = {static_cast<int>(lanes), static_cast<int>(m / groups), static_cast<int>(n / lanes), false, false};
  }
  own.rows_in_fours = !lies_along_k(gemm, gemm.a) && own.rows % elements_of_vector == 0;
  own.columns_in_fours = !lies_along_k(gemm, gemm.b) && own.columns % elements_of_vector == 0;
  return own;
}

// Whether warps multiply a sparse operand by the words of its metadata, each of 64 columns.
bool is_sparse_for_warps(const Gemm& gemm) {
  const DType type = gemm.a.buffer->type;
  return type.is_floating() && type.bits() == 16 && gemm.c.buffer->type == f32 && gemm.depth() % 64 == 0 &&
         gemm.a.buffer->space == Space::shared;
}

}  // namespace

bool lies_along_k(const Gemm& gemm, const View& operand) {
  return is_transposed(operand) == (&operand == &gemm.b);
}

bool has_tensor_cores(DType type) {
  return type.is_floating() ? type.bits() <= 16 : type.is_integer() && type.bits() == 8;
}

bool is_on_tensor_cores(const Gemm& gemm) {
  const DType type = gemm.a.buffer->type;
  return has_tensor_cores(type) || (type == f32 && gemm.hints.precision != Precision::ieee);
}

bool asks_for_promotion(const Gemm& gemm) {
  const DType type = gemm.a.buffer->type;
  return type.bits() == 8 && type.is_floating() && !gemm.overwrite &&
         gemm.hints.accumulation == Accumulation::promoted;
}

bool needs_promotion(const Gemm& gemm, const GemmPlan& plan) {
  return plan.instruction == GemmInstruction::wgmma && asks_for_promotion(gemm);
}

int accumulators(const Gemm& gemm, const GemmPlan& plan) {
  const std::int64_t rows = gemm.c.extent(plan.swapped ? 1 : 0) / (64 * plan.parts.along_m);
  return static_cast<int>(rows * static_cast<std::int64_t>(plan.columns.size()));
}

bool takes_operands_apart(const For& step, int threads, const CudaTarget& target) {
  constexpr std::int64_t most_kept = 200;  // measured: 248 are too many, 192 are not
  std::int64_t places = 0;
  for_each_stmt(step.body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    const GemmPlan plan = gemm ? plan_gemm(*gemm, threads, target) : GemmPlan{};
    if (plan.instruction != GemmInstruction::wgmma) return;
    places += accumulators(*gemm, plan) * gemm->depth() / plan.k * (plan.a_in_registers ? 1 : 2);
  });
  return places > most_kept;
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
  const std::int64_t m = gemm.c.extent(0), n = gemm.c.extent(1), k = gemm.depth();
  const DType type = gemm.a.buffer->type;
  GemmPlan plan;
  if (target.has_wgmma() && !gemm.hints.by_warp) {
    const auto by_groups = plan_wgmma(gemm, threads);
    if (by_groups) return *by_groups;
    plan.fallback = by_groups.reason();
  }
  const bool dense = !gemm.metadata, by_warps = is_on_tensor_cores(gemm) && threads % 32 == 0 && n % 8 == 0;
  if (by_warps && (dense || is_sparse_for_warps(gemm))) {
    plan.instruction = GemmInstruction::mma_sync;
    plan.parts = divide(m, n, threads / 32, 16);
    plan.accumulator = layout::mma_accumulator(m, n, plan.parts);
    plan.a_in_registers = dense && gemm.a.buffer->space == Space::fragment && is_whole(gemm.a) &&
                          type.bits() == 16 && k % 16 == 0 && plan.parts.along_n == 1;
    if (type == f32) plan.k = 8;
    if (!type.is_floating()) plan.k = 32;
    if (dense && k % 16 == 0 && plan.k == 16) plan.operand_a = layout::mma_operand_a(m, k, plan.parts);
    return plan;
  }
  if (dense) {
    plan.fallback = reason_of_mma(gemm, threads);
    plan.own = own_block(gemm, threads);
  }
  if (plan.own.lanes > 0) {
    plan.accumulator = layout::own_blocks(m, n, threads, plan.own);
    return plan;
  }
  const std::int64_t vector = n % 4 == 0 && m * n >= 4 * threads ? 4 : 1;
  plan.accumulator = layout::blocked(threads, {m, n}, vector);
  return plan;
}

}  // namespace tegula::passes

#include "passes/cuda/plan_gemms.hpp"

#include <algorithm>
#include <numeric>

#include "layout/tile_order.hpp"

namespace tegula::passes {

using namespace ir;
using layout::Division;

namespace {

constexpr std::int64_t promoted_products = 128;

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

// Whether wgmma can read the operand from shared memory, where a fragment would be moved as it is.
bool is_operand(const View& view) {
  const int bytes = view.buffer->type.bytes();
  if (view.buffer->space == Space::fragment)
    return layout::swizzled_order(view.extent(0), view.extent(1), bytes).is_swizzled();
  if (!is_matrix(view)) return false;
  return layout::swizzled_order(view.buffer->extent(0), view.buffer->extent(1), bytes).is_swizzled();
}

// Whether parts of so many columns begin where an operand can: rows of B lie in blocks of columns.
bool can_divide(const View& b, std::int64_t columns) {
  if (is_matrix(b) && is_transposed(b)) return true;
  return columns % layout::swizzled_order(b.extent(0), b.extent(1), b.buffer->type.bytes()).columns == 0;
}

// Operands of 8 bits lie along k in shared memory, and sums to be promoted are of at most 128 products.
bool fits_8_bits(const Gemm& gemm) {
  const bool along_k = gemm.a.buffer->space == Space::shared && !is_transposed(gemm.a) &&
                       gemm.b.buffer->space == Space::shared && is_transposed(gemm.b);
  return along_k &&
         (gemm.hints.accumulation == Accumulation::tensor_core || gemm.a.extent(1) <= promoted_products);
}

// m64nNk16, or k32 of 8 bits: each warp group multiplies rows of its own; where there are fewer rows, columns
// of its own too.
std::optional<GemmPlan> plan_wgmma(const Gemm& gemm, int threads) {
  const std::int64_t m = gemm.c.extent(0), n = gemm.c.extent(1), k = gemm.a.extent(1), groups = threads / 128;
  const DType type = gemm.a.buffer->type;
  const int step = type.bits() == 8 ? 32 : 16;
  if (threads % 128 != 0 || m % 64 != 0 || k % step != 0) return std::nullopt;
  const std::int64_t along_m = std::gcd(m / 64, groups), along_n = groups / along_m, own = n / along_n;
  if (n % (8 * along_n) != 0 || (own > 256 && own % 256 != 0)) return std::nullopt;
  if (!has_tensor_cores(type) || gemm.b.buffer->type != type || gemm.c.buffer->type != f32)
    return std::nullopt;
  if (type.bits() == 8 && !fits_8_bits(gemm)) return std::nullopt;
  GemmPlan plan;
  plan.instruction = GemmInstruction::wgmma;
  plan.k = step;
  plan.parts = {along_m, along_n};
  plan.a_in_registers = along_n == 1 && gemm.a.buffer->space == Space::fragment && is_whole(gemm.a);
  if ((!plan.a_in_registers && !is_operand(gemm.a)) || !is_operand(gemm.b)) return std::nullopt;
  if (along_n > 1 && !can_divide(gemm.b, own)) return std::nullopt;
  plan.accumulator = layout::wgmma_accumulator(m, n, plan.parts);
  if (plan.a_in_registers) plan.operand_a = layout::wgmma_operand_a(m, k, plan.parts);
  return plan;
}

}  // namespace

bool has_tensor_cores(DType type) { return type.is_floating() && type.bits() <= 16; }

bool needs_promotion(const Gemm& gemm, const GemmPlan& plan) {
  return plan.instruction == GemmInstruction::wgmma && gemm.a.buffer->type.bits() == 8 && !gemm.overwrite &&
         gemm.hints.accumulation == Accumulation::promoted;
}

int accumulators(const Gemm& gemm, const GemmPlan& plan) {
  const std::int64_t rows = gemm.c.extent(0) / (64 * plan.parts.along_m),
                     columns = gemm.c.extent(1) / plan.parts.along_n;
  return static_cast<int>(rows * ((columns + 255) / 256));
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

bool is_transposed(const View& view) { return view.dims[0].axis == 1; }

GemmPlan plan_gemm(const Gemm& gemm, int threads, const CudaTarget& target) {
  const std::int64_t m = gemm.c.extent(0), n = gemm.c.extent(1), k = gemm.a.extent(1);
  const DType type = gemm.a.buffer->type;
  if (target.has_wgmma() && !gemm.hints.by_warp) {
    if (auto plan = plan_wgmma(gemm, threads)) return *plan;
  }
  GemmPlan plan;
  if (has_tensor_cores(type) && threads % 32 == 0 && n % 8 == 0) {
    plan.instruction = GemmInstruction::mma_sync;
    plan.parts = divide(m, n, threads / 32, 16);
    plan.accumulator = layout::mma_accumulator(m, n, plan.parts);
    plan.a_in_registers = gemm.a.buffer->space == Space::fragment && is_whole(gemm.a) && type.bits() == 16 &&
                          k % 16 == 0 && plan.parts.along_n == 1;
    if (k % 16 == 0) plan.operand_a = layout::mma_operand_a(m, k, plan.parts);
    return plan;
  }
  const std::int64_t vector = n % 4 == 0 && m * n >= 4 * threads ? 4 : 1;
  plan.accumulator = layout::blocked(threads, {m, n}, vector);
  return plan;
}

}  // namespace tegula::passes

#include "passes/cuda/plan_gemms.hpp"

#include <algorithm>

namespace tegula::passes {

using namespace ir;
using layout::Division;

namespace {

bool has_tensor_cores(DType type) { return type.is_floating() && type.bits() <= 16; }

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

}  // namespace

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

GemmPlan plan_gemm(const Gemm& gemm, int threads, const CudaTarget&) {
  const std::int64_t m = gemm.c.extent(0), n = gemm.c.extent(1), k = gemm.a.extent(1);
  const DType type = gemm.a.buffer->type;
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

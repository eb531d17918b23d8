#include "passes/cuda/plan_gemms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "layout/tile_order.hpp"
#include "passes/note.hpp"

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

// What tensor cores need at all.
Reason reason_of_types(const Gemm& gemm) {
  const DType type = gemm.a.buffer->type;
  if (has_tensor_cores(type)) return {};
  return {fmt::format("tensor cores do not multiply {}", type.name()),
          type.is_floating()
              ? "convert the operands to bf16 or f16 where that is exact enough: `.to(bf16)`, or "
                "a tensor of that type"
              : "convert the operands to f16, which holds integers up to 2048 exactly, and sum in "
                "f32"};
}

Reason reason_of_operand(const char* which, const View& view) {
  if (view.buffer->space == Space::fragment || is_matrix(view))
    return {fmt::format("rows of operand {} {}, {} x {} of {}, do not fill blocks of 32, 64 or 128 bytes",
                        which, named(*view.buffer), view.buffer->extent(0), view.buffer->extent(1),
                        view.buffer->type.name()),
            "give the tile rows of 128 bytes, or a multiple, and a multiple of eight rows"};
  const bool whole = view.buffer->rank() == 2 && view.shape.size() == 2;
  return {fmt::format("operand {} is {} of tile {}", which, whole ? "a part" : "a reshaped part",
                      named(*view.buffer)),
          "give each operand a tile of its own, with its own two dimensions"};
}

Reason reason_of_rows(const Gemm& gemm, int threads, int step) {
  const std::int64_t m = gemm.c.extent(0), k = gemm.a.extent(1);
  if (threads == 32)
    return {"each warp multiplies alone", "leave the product to the block, or to Group::warpgroup"};
  if (m % 64 != 0)
    return {fmt::format("the sum has {} rows, and a warp group multiplies 64", m),
            "use tiles of 64 rows or a multiple"};
  if (threads % 128 != 0)
    return {fmt::format("{} threads are no warp groups", threads), "use .threads = 128, or a multiple"};
  return {fmt::format("{} products an element are no multiple of {}", k, step),
          fmt::format("use tiles with a multiple of {} along k", step)};
}

Reason reason_of_columns(const Gemm& gemm, std::int64_t along_n) {
  const std::int64_t n = gemm.c.extent(1);
  const std::string columns = fmt::format("{} columns on {} warp groups", n, along_n);
  if (n % (8 * along_n) != 0)
    return {columns + " are no multiple of eight each",
            "use a multiple of eight columns for every warp group"};
  return {columns + " are more than 256 each, and no multiple of it",
          "use 256 columns or less, or a multiple"};
}

Reason reason_of_8_bits(const Gemm& gemm) {
  for (const View* operand : {&gemm.a, &gemm.b}) {
    if (operand->buffer->space == Space::fragment)
      return {fmt::format("operand {} of 8 bits is in registers", named(*operand->buffer)),
              "put it into a Shared tile"};
  }
  if (is_transposed(gemm.a) || !is_transposed(gemm.b))
    return {"operands of 8 bits must lie along k",
            "give them as a [m, k] and b [n, k], and multiply a by b.T()"};
  return {
      fmt::format("{} products are added before they are promoted", gemm.a.extent(1)),
      fmt::format("use tiles with {} along k, or .accumulate = Accumulate::tensor_core", promoted_products)};
}

// m64nNk16, or k32 of 8 bits: each warp group multiplies rows of its own; where there are fewer rows, columns
// of its own too.
Planned<GemmPlan> plan_wgmma(const Gemm& gemm, int threads) {
  const std::int64_t m = gemm.c.extent(0), n = gemm.c.extent(1), k = gemm.a.extent(1), groups = threads / 128;
  const DType type = gemm.a.buffer->type;
  const int step = type.bits() == 8 ? 32 : 16;
  if (!has_tensor_cores(type) || gemm.b.buffer->type != type || gemm.c.buffer->type != f32)
    return reason_of_types(gemm);
  if (threads % 128 != 0 || m % 64 != 0 || k % step != 0) return reason_of_rows(gemm, threads, step);
  const std::int64_t along_m = std::gcd(m / 64, groups), along_n = groups / along_m, own = n / along_n;
  if (n % (8 * along_n) != 0 || (own > 256 && own % 256 != 0)) return reason_of_columns(gemm, along_n);
  if (type.bits() == 8 && !fits_8_bits(gemm)) return reason_of_8_bits(gemm);
  GemmPlan plan;
  plan.instruction = GemmInstruction::wgmma;
  plan.k = step;
  plan.parts = {along_m, along_n};
  plan.a_in_registers = along_n == 1 && gemm.a.buffer->space == Space::fragment && is_whole(gemm.a);
  if (!plan.a_in_registers && !is_operand(gemm.a)) return reason_of_operand("A", gemm.a);
  if (!is_operand(gemm.b)) return reason_of_operand("B", gemm.b);
  if (along_n > 1 && !can_divide(gemm.b, own))
    return Reason{
        fmt::format("each of {} warp groups has {} columns of tile {}, less than a block of its rows", groups,
                    own, named(*gemm.b.buffer)),
        fmt::format("use .threads = {}, more columns, or a tile [n, k] that is multiplied as b.T()",
                    128 * along_m)};
  plan.accumulator = layout::wgmma_accumulator(m, n, plan.parts);
  if (plan.a_in_registers) plan.operand_a = layout::wgmma_operand_a(m, k, plan.parts);
  return plan;
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

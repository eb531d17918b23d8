#include "passes/cuda/plan_wgmma.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "layout/byte_operand.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/note.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::int64_t promoted_products = 128, rows_of_group = 64, multiple_of_columns = 8;

// [m, k] · [k, n] as instructions multiply it: the product, or with the operands exchanged its transpose.
struct Instructed {
  Instructed(const Gemm& gemm, bool exchanged)
      : swapped(exchanged),
        a(exchanged ? transposed(gemm.b) : gemm.a),
        b(exchanged ? transposed(gemm.a) : gemm.b),
        m(gemm.c.extent(exchanged ? 1 : 0)),
        n(gemm.c.extent(exchanged ? 0 : 1)),
        k(gemm.depth()),
        sparse(gemm.metadata.has_value()),
        promoted(asks_for_promotion(gemm)) {}

  bool swapped;
  View a, b;
  std::int64_t m, n, k;
  bool sparse;
  bool promoted;
};

// Of a thread, for a product's sums and those of one instruction that are to be added to them.
constexpr std::int64_t registers_of_promotion = 208;

// Instructions are half as wide where the sums of a whole one would not fit beside those that they add to.
std::int64_t widest_of(const Instructed& p, const layout::Division& parts) {
  const std::int64_t rows = p.m / (rows_of_group * parts.along_m), columns = p.n / parts.along_n;
  const std::int64_t own = std::min(columns, widest_instruction) / 2;
  return p.promoted && rows * columns / 2 + own > registers_of_promotion ? widest_instruction / 2
                                                                         : widest_instruction;
}

// Only operands of 16 bits are read across k. From registers also a left one of floats of 8 bits is.
Reason reason_of_order(const Gemm& gemm) {
  const DType type = gemm.a.buffer->type;
  const char* width = type == f32 ? "tf32" : "8 bits";
  const bool takes_registers = type.bits() == 8 && type.is_floating() && !gemm.metadata;
  for (const View* operand : {&gemm.a, &gemm.b}) {
    const bool whole = operand == &gemm.a && takes_registers && columns_of_fragment(gemm.a).has_value();
    if (operand->buffer->space == Space::fragment && !whole)
      return {fmt::format("operand {} of {} is in registers", named(*operand->buffer), width),
              "copy it to a Shared tile"};
  }
  if (is_transposed(gemm.a) || !is_transposed(gemm.b))
    return {fmt::format("operands of {} must be K-major", width),
            "give them as a [m, k] and b [n, k], and multiply a by b.T()"};
  return {};
}

// Sums to be promoted are of at most 128 products.
Reason reason_of_sums(const Gemm& gemm) {
  if (gemm.a.buffer->type.bits() != 8) return {};
  if (!gemm.a.buffer->type.is_floating() || gemm.hints.accumulation == Accumulation::tensor_core ||
      gemm.depth() <= promoted_products)
    return {};
  return {
      fmt::format("{} products are added before they are promoted", gemm.depth()),
      fmt::format("use tiles with {} along k, or .accumulate = Accumulate::tensor_core", promoted_products)};
}

Reason reason_of_threads(const Gemm& gemm, int threads, int step) {
  if (threads == 32)
    return {"each warp multiplies alone", "leave the product to the block, or to Group::warpgroup"};
  if (threads % 128 != 0)
    return {fmt::format("{} threads are not whole warp groups", threads),
            "use .threads = 128, or a multiple"};
  if (gemm.depth() % step == 0) return {};
  return {fmt::format("{} products per element are not a multiple of {}", gemm.depth(), step),
          fmt::format("use tiles with a multiple of {} along k", step)};
}

Reason reason_of_columns(const Instructed& p, std::int64_t groups) {
  const char* side = p.swapped ? "rows" : "columns";
  return {fmt::format("{} {} on {} warp groups are not a multiple of eight each", p.n, side, groups),
          fmt::format("use a multiple of eight {} per warp group", side)};
}

Reason reason_of_parts(const Instructed& p, std::int64_t groups, std::int64_t own, std::int64_t along_m) {
  return {fmt::format("each of {} warp groups has {} columns of tile {}, which do not begin with blocks of "
                      "its rows",
                      groups, own, named(*p.b.buffer)),
          fmt::format("use .threads = {}, more columns, or a tile [n, k] that is multiplied as b.T()",
                      128 * along_m)};
}

// Instructions of integers have 8, 24 or a multiple of 16 columns.
Reason reason_of_widths(const Instructed& p, const std::vector<int>& columns) {
  const auto exists = [](int width) { return width == 8 || width == 24 || width % 16 == 0; };
  if (p.a.buffer->type.is_floating() || std::all_of(columns.begin(), columns.end(), exists)) return {};
  return {
      fmt::format("products of {} have no instruction of {} columns", p.a.buffer->type.name(), columns[0]),
      "use a multiple of 16 columns per warp group"};
}

// Where an operand is; a fragment is moved to a tile of its own as it is.
Planned<OperandPlace> place_in(const Instructed& p, const View& operand, int along_k) {
  if (operand.buffer->space != Space::fragment) return place_of(operand, along_k);
  OperandPlace place;
  place.is_transposed = p.swapped;
  place.rows = operand.extent(p.swapped ? 1 : 0);
  place.order =
      layout::swizzled_order(place.rows, operand.extent(p.swapped ? 0 : 1), operand.buffer->type.bytes());
  if (place.order.is_swizzled()) return place;
  return Reason{
      fmt::format("operand {}, {} x {} of {}, does not fill blocks of 32, 64 or 128 bytes",
                  named(*operand.buffer), operand.extent(0), operand.extent(1), operand.buffer->type.name()),
      "use rows of a multiple of 128 bytes, and a multiple of eight rows"};
}

Reason reason_of_a(const View& a, const OperandPlace& place) {
  if (!place.is_transposed || place.column % place.order.columns == 0) return {};
  return {fmt::format("operand {} begins at column {}, inside a block of {}", named(*a.buffer), place.column,
                      place.order.columns),
          fmt::format("begin at multiples of {} columns", place.order.columns)};
}

// A sparse operand runs along k; an instruction reads 64 bytes along k of the other one.
Reason reason_of_sparsity(const Instructed& p, const OperandPlace& b) {
  if (!p.sparse) return {};
  if (is_transposed(p.a))
    return {fmt::format("sparse operand {} is not K-major", named(*p.a.buffer)),
            "give its values as a tile [m, k / 2]"};
  const std::int64_t bytes = p.b.buffer->type.bytes();
  if (!b.is_transposed || (b.order.columns * bytes >= 64 && b.column * bytes % 64 == 0)) return {};
  return {fmt::format("a sparse product reads 64 bytes along k of operand {} at once, which blocks of the "
                      "tile divide",
                      named(*p.b.buffer)),
          "give the tile rows of a multiple of 128 bytes, and start at multiples of 64 bytes"};
}

Planned<GemmPlan> plan_product(const Instructed& p, int groups, int step) {
  if (p.m % rows_of_group != 0)
    return Reason{
        fmt::format("the sum has {} {}, and a warp group multiplies {}", p.m, p.swapped ? "columns" : "rows",
                    rows_of_group),
        fmt::format("use tiles of {0} rows or a multiple, or of eight rows with {0} columns or a multiple",
                    rows_of_group)};
  const std::int64_t along_m = std::gcd(p.m / rows_of_group, groups), along_n = groups / along_m;
  if (p.n % (multiple_of_columns * along_n) != 0) return reason_of_columns(p, along_n);
  GemmPlan plan;
  plan.instruction = GemmInstruction::wgmma;
  plan.swapped = p.swapped;
  plan.k = step;
  plan.parts = {along_m, along_n};
  plan.a_in_registers = !p.sparse && !p.swapped && along_n == 1 && columns_of_fragment(p.a).has_value();
  if (!plan.a_in_registers) {
    const auto a = place_in(p, p.a, 1);
    if (!a) return a.reason();
    if (const Reason reason = reason_of_a(p.a, *a); !reason.why.empty()) return reason;
  }
  const auto b = place_in(p, p.b, 0);
  if (!b) return b.reason();
  if (const Reason reason = reason_of_sparsity(p, *b); !reason.why.empty()) return reason;
  plan.columns = instruction_columns(*b, p.n / along_n, along_n, widest_of(p, plan.parts));
  if (plan.columns.empty()) return reason_of_parts(p, groups, p.n / along_n, along_m);
  if (const Reason reason = reason_of_widths(p, plan.columns); !reason.why.empty()) return reason;
  plan.accumulator = layout::wgmma_accumulator(p.m, p.n, plan.parts);
  if (p.swapped) plan.accumulator = plan.accumulator.permute({1, 0});
  if (plan.a_in_registers) {
    const auto layout_of =
        p.a.buffer->type.bits() == 8 ? layout::wgmma_byte_operand_a : layout::wgmma_operand_a;
    plan.operand_a = layout_of(p.m, p.a.buffer->extent(1), plan.parts);
  }
  return plan;
}

}  // namespace

Reason reason_of_types(const Gemm& gemm) {
  if (is_on_tensor_cores(gemm)) return {};
  const DType type = gemm.a.buffer->type;
  if (type == f32)
    return {"tensor cores do not multiply f32",
            "request .precision = Precision::tf32x3, which keeps 21 bits of the operands, or convert them to "
            "bf16 or f16 if that is accurate enough: `.to(bf16)`, or a tensor of that type"};
  return {fmt::format("tensor cores {} multiply {}", type == f64 ? "are not used to" : "do not", type.name()),
          type.is_floating()
              ? "convert the operands to bf16 or f16 if that is accurate enough: `.to(bf16)`, or "
                "a tensor of that type"
              : "convert the operands to f16, which holds integers up to 2048 exactly, and sum in "
                "f32"};
}

std::optional<std::int64_t> columns_of_fragment(const View& view) {
  const Buffer& tile = *view.buffer;
  if (tile.space != Space::fragment || tile.rank() != 2 || view.rank() != 2 || view.dims.size() != 2)
    return std::nullopt;
  const ViewDim &rows = view.dims[0], &columns = view.dims[1];
  if (!equal(view.shape[0], tile.shape[0]) || !equal(view.shape[1], tile.shape[1])) return std::nullopt;
  if (rows.axis != 0 || columns.axis != 1 || !is_constant(rows.offset, 0) || !is_constant(columns.offset))
    return std::nullopt;
  const std::int64_t first = constant_value(columns.offset);
  const std::int64_t step = 256 / tile.type.bits();  // of an instruction along k
  const bool whole_steps = first % step == 0 && tile.extent(1) % step == 0;
  return view.extent(0) == tile.extent(0) && whole_steps ? std::optional(first) : std::nullopt;
}

Planned<GemmPlan> plan_wgmma(const Gemm& gemm, int threads) {
  const DType type = gemm.a.buffer->type;
  // Two instructions of a sparse product in 16 bits share a word of metadata.
  const int step = 256 / type.bits() * (gemm.metadata ? 2 : 1);
  const int least = gemm.metadata ? 64 : step;
  const DType sum = gemm.c.buffer->type;
  const bool is_sum = sum == (type.is_floating() ? f32 : i32) || (sum == f16 && type == f16);
  if (!is_on_tensor_cores(gemm) || gemm.b.buffer->type != type || !is_sum) return reason_of_types(gemm);
  if (const Reason reason = reason_of_threads(gemm, threads, least); !reason.why.empty()) return reason;
  if (type.bits() != 16) {
    if (const Reason reason = reason_of_order(gemm); !reason.why.empty()) return reason;
    if (const Reason reason = reason_of_sums(gemm); !reason.why.empty()) return reason;
  }
  const auto plain = plan_product({gemm, false}, threads / 128, step);
  const std::optional<bool> asked = gemm.hints.swap;
  if (gemm.metadata || asked == false || (plain && asked != true)) return plain;
  const auto swapped = plan_product({gemm, true}, threads / 128, step);
  return swapped ? swapped : plain;
}

}  // namespace tegula::passes

// Products.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

struct ElementPlace {
  VariablePtr row, column;
};

// The indices of an element of the view; the facts record that it is inside.
ElementPlace place_in(const View& view, Facts& facts) {
  const ElementPlace place{passes::new_variable("row", i32, VariableKind::index, view.buffer->at),
                           passes::new_variable("column", i32, VariableKind::index, view.buffer->at)};
  facts.add_range(place.row, {0, view.extent(0) - 1});
  facts.add_range(place.column, {0, view.extent(1) - 1});
  return place;
}

}  // namespace

void CudaGridPrinter::touch_operands(const Gemm& n) {
  for (const View* operand : operands(n)) touch(*operand, MemoryUse::read, false);
}

void CudaGridPrinter::operator()(const Gemm& n, const Stmt& s) {
  const passes::GemmPlan plan = passes::plan_gemm(n, team_.threads, target_);
  notes_.of_gemm(n, plan, s->at);
  if (n.metadata && plan.instruction == passes::GemmInstruction::fma)
    throw ProgramError(fmt::format("a sparse product by {} threads: {}; {}", team_.threads, plan.fallback.why,
                                   plan.fallback.remedy),
                       s->at);
  const FragmentTile own = fragments_.at(n.c.buffer.get());
  FragmentTile c = own;
  const bool moves = own.layout != plan.accumulator;
  if (moves) c = converted(n.c.buffer, plan.accumulator, !n.overwrite, s->at);
  const bool by_warp_groups = plan.instruction == passes::GemmInstruction::wgmma;
  if (n.overwrite && !by_warp_groups) {
    out_.code();
    clear_registers(c);
  }
  if (by_warp_groups)
    gemm_wgmma(n, c, s->at);
  else if (plan.instruction == passes::GemmInstruction::fma)
    gemm_fma(n, plan, c, s->at);
  else
    gemm_mma(n, plan, c, s->at);
  if (const std::string rounding = rounding_of_sum(n, c); !by_warp_groups && !rounding.empty())
    out_.line(rounding);
  if (!moves) return;
  const SharedTile tile = stage(c.name, n.c.buffer->elements(), n.c.buffer->type);
  to_shared(c, tile, s->at);
  from_shared(tile, own, s->at);
  release(tile);
}

// What rounds a sum of f16 that is added up in registers of f32; nothing if it is in words.
std::string CudaGridPrinter::rounding_of_sum(const Gemm& n, const FragmentTile& c) const {
  return n.c.buffer->type != f16 || c.is_packed ? ""
                                                : fmt::format("tg::round_registers<tg::f16>({});", c.name);
}

// The lines of an operand that a thread multiplies: rows of A, columns of B.
std::string CudaGridPrinter::own_lines(const Gemm& n, const View& operand, const layout::OwnBlock& own) {
  const bool is_a = &operand == &n.a, along_k = passes::lies_along_k(n, operand),
             in_fours = is_a ? own.rows_in_fours : own.columns_in_fours;
  const Buffer& tile = *operand.buffer;
  const SharedTile& shared = shared_.at(&tile);
  const int units = is_a ? team_.threads / own.lanes : own.lanes, together = in_fours ? 4 : 1;
  const std::string unit = fmt::format("{} {} {}", team_.thread, is_a ? "/" : "%", own.lanes);
  return fmt::format("tg::{}<{}, {}, {}, {}, {}, {}>{{{}, {}}}", along_k ? "LinesAlongK" : "LinesAcrossK",
                     element_type(tile.type), tile.extent(0), tile.extent(1), shared.order.columns,
                     units * together, together, shared.name, times(unit, together));
}

// Each thread multiplies for the elements that it holds, in the type of the sum.
void CudaGridPrinter::gemm_fma(const Gemm& n, const passes::GemmPlan& plan, const FragmentTile& c,
                               const Loc& at) {
  const Facts before = facts_;
  out_.code();
  touch_operands(n);
  if (plan.own.lanes > 0 && shared_.contains(n.a.buffer.get()) && shared_.contains(n.b.buffer.get())) {
    out_.line(fmt::format("tg::multiply_add<{}, {}, {}>({}, {}, {});  // {}: c += a b", plan.own.rows,
                          plan.own.columns, n.a.extent(1), c.name, own_lines(n, n.a, plan.own),
                          own_lines(n, n.b, plan.own), location_in_folder(at)));
    return;
  }
  out_.open(fmt::format("{{  // {}: c += a b by multiply-add", location_in_folder(at)));
  const Texts base = base_coordinates(c.layout);
  const VariablePtr i = passes::new_variable("i", i32, VariableKind::index, at),
                    j = passes::new_variable("j", i32, VariableKind::index, at),
                    k = passes::new_variable("k", i32, VariableKind::index, at);
  for (const auto& [v, extent] : {std::pair{i, n.c.extent(0)}, {j, n.c.extent(1)}, {k, n.a.extent(1)}})
    facts_.add_range(v, {0, extent - 1});
  const std::string step = name_variable(k);
  // Of a short product all operands are on their way at once.
  constexpr std::int64_t most_unrolled = 128;
  const bool is_short = n.a.extent(1) * c.layout.register_count() <= most_unrolled;
  out_.line(is_short ? "#pragma unroll" : "#pragma unroll 4");
  out_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) {{", step, n.a.extent(1)));
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", c.layout.register_count()));
  const Coordinates x = register_coordinates(c.layout, base);
  values_.set(i, x.names[0]);
  values_.set(j, x.names[1]);
  if (!x.inside.empty()) out_.open(fmt::format("if ({}) {{", x.inside));
  const std::string type(scalar_type(n.c.buffer->type));
  const std::string a = load_text({n.a, {variable(i), variable(k)}}),
                    b = load_text({n.b, {variable(k), variable(j)}});
  out_.line(fmt::format("{0}[r] += {1}({2}) * {1}({3});", c.name, type, a, b));
  if (!x.inside.empty()) out_.close();
  out_.close();
  out_.close();
  out_.close();
  facts_ = before;
}

// A function of the place of two neighbours along k that gives both as 16-bit floats in a word.
std::string CudaGridPrinter::operand_lambda(const View& view, int pair_axis, DType packed) {
  const Facts before = facts_;
  const auto [row, column] = place_in(view, facts_);
  const std::string name = names_.unique(view.buffer->name + "_pair");
  const std::string i = name_variable(row), j = name_variable(column);
  out_.open(fmt::format("const auto {} = [&](int {}, int {}) -> uint32_t {{", name, i, j));
  // Rows and columns beyond the tile, in the last of the instruction's blocks, are zero.
  out_.line(fmt::format("if ({} >= {} || {} >= {}) return 0;", i, view.extent(0), j, view.extent(1)));
  const std::string low = load_text({view, {variable(row), variable(column)}});
  const VariablePtr next = passes::new_variable("next", i32, VariableKind::index, view.buffer->at);
  const std::int64_t extent = view.extent(pair_axis);
  facts_.add_range(next, {0, extent - 1});
  const std::string k = pair_axis == 0 ? i : j, following = name_variable(next);
  const bool odd = extent % 2 != 0;
  out_.line(fmt::format("const int {} = {};", following,
                        odd ? fmt::format("tg::min({} + 1, {})", k, extent - 1) : k + " + 1"));
  std::string high =
      load_text({view, {variable(pair_axis == 0 ? next : row), variable(pair_axis == 0 ? column : next)}});
  if (odd) high = fmt::format("({} + 1 < {} ? {} : 0.0f)", k, extent, high);
  out_.line(fmt::format("return tg::pair<{}>({}, {});", element_type(packed), low, high));
  out_.close(";");
  facts_ = before;
  return name;
}

// A function of the place of a word along k: a number as tf32, or four integers.
std::string CudaGridPrinter::word_lambda(const View& view, int k_axis) {
  const Facts before = facts_;
  const auto [row, column] = place_in(view, facts_);
  const bool is_number = view.buffer->type == f32;
  const std::string one = names_.unique(view.buffer->name + (is_number ? "_number" : "_element"));
  const std::string i = name_variable(row), j = name_variable(column);
  out_.open(
      fmt::format("const auto {} = [&](int {}, int {}) -> {} {{", one, i, j, is_number ? "uint32_t" : "int"));
  out_.line(fmt::format("if ({} >= {} || {} >= {}) return 0;", i, view.extent(0), j, view.extent(1)));
  const std::string element = load_text({view, {variable(row), variable(column)}});
  out_.line(fmt::format("return {};", is_number ? fmt::format("tg::bits_tf32({})", element) : element));
  out_.close(";");
  facts_ = before;
  if (is_number) return one;
  const std::string name = names_.unique(view.buffer->name + "_four");
  const auto next = [&](int k) {
    return k_axis == 0 ? fmt::format("{}(i + {}, j)", one, k) : fmt::format("{}(i, j + {})", one, k);
  };
  out_.line(fmt::format("const auto {} = [&](int i, int j) {{ return tg::four({}, {}, {}, {}); }};", name,
                        next(0), next(1), next(2), next(3)));
  return name;
}

std::string CudaGridPrinter::words_operand(const Gemm& n, const View& view, bool fits) {
  const auto tile = shared_.find(view.buffer.get());
  const DType type = view.buffer->type;
  if (!fits || !passes::is_matrix(view) || !passes::lies_along_k(n, view) || tile == shared_.end() ||
      !tile->second.order.is_swizzled())
    return fmt::format("tg::{}({})", type == f32 ? "numbers" : "fours",
                       word_lambda(view, &view == &n.b ? 0 : 1));
  return fmt::format("tg::SwizzledWords<{}, {}, {}>{{{}}}", element_type(type), view.buffer->extent(0),
                     tile->second.order.columns, tile->second.name);
}

// What gives the words of the operand: the tile itself if it is in the order that ldmatrix reads, and whole
// blocks of it are read.
std::string CudaGridPrinter::mma_operand(const View& view, int k_axis, bool fits, DType packed) {
  const auto tile = shared_.find(view.buffer.get());
  if (!fits || view.buffer->type.bits() != 16 || !passes::is_matrix(view) || tile == shared_.end() ||
      !tile->second.order.is_swizzled())
    return fmt::format("tg::pairs({})", operand_lambda(view, k_axis, packed));
  return fmt::format("tg::Swizzled<{}, {}, {}, {}>{{{}}}", element_type(packed), view.buffer->extent(0),
                     tile->second.order.columns, passes::is_transposed(view), tile->second.name);
}

void CudaGridPrinter::gemm_mma(const Gemm& n, const passes::GemmPlan& plan, const FragmentTile& c,
                               const Loc& at) {
  const DType type = n.a.buffer->type, packed = type == bf16 ? bf16 : f16;
  const bool by_words = plan.k != 16;
  const std::int64_t m = n.c.extent(0), columns = n.c.extent(1) / plan.parts.along_n, k = n.a.extent(1);
  const std::int64_t tiles_m = (m + 16 * plan.parts.along_m - 1) / (16 * plan.parts.along_m);
  FragmentTile a;
  if (plan.a_in_registers) {
    a = fragments_.at(n.a.buffer.get());
    if (a.layout != plan.operand_a) a = converted(n.a.buffer, plan.operand_a, true, at);
  }
  out_.code();
  touch_operands(n);
  out_.open(fmt::format("{{  // {}: c += a b by mma.sync", location_in_folder(at)));
  const std::string warp = fmt::format("{} / 32", team_.thread);
  const std::string row =
      n.hints.by_warp ? "warp * 16" : fmt::format("{} % {} * 16", warp, plan.parts.along_m);
  const std::string column =
      n.hints.by_warp ? "0" : fmt::format("{} / {} * {}", warp, plan.parts.along_m, columns);
  const auto operand = [&](const View& view, bool whole_blocks) {
    const bool fits = n.depth() % plan.k == 0 && whole_blocks;
    return by_words ? words_operand(n, view, fits) : mma_operand(view, &view == &n.b ? 0 : 1, fits, packed);
  };
  const std::string b = operand(n.b, columns % 16 == 0);
  const bool whole_rows = m % (16 * plan.parts.along_m) == 0;
  if (n.metadata) {
    out_.line(fmt::format("tg::mma_sparse<{}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {});", element_type(packed),
                          tiles_m, columns / 8, n.depth() / 64, 16 * plan.parts.along_m, c.name, row, column,
                          operand(n.a, whole_rows), b, metadata_bytes(n, !whole_rows)));
    return out_.close();
  }
  const std::string shape =
      fmt::format("{}, {}, {}, {}", type == f32 ? "tg::tf32" : element_type(by_words ? type : packed),
                  tiles_m, columns / 8, (k + plan.k - 1) / plan.k);
  if (plan.a_in_registers) {
    out_.line(fmt::format("tg::mma_registers<{}>({}, {}, {}, {});", shape, c.name, a.name, column, b));
  } else {
    const std::string a_operand = operand(n.a, whole_rows);
    out_.line(fmt::format("tg::mma_shared<{}, {}>({}, {}, {}, {}, {});", shape, 16 * plan.parts.along_m,
                          c.name, row, column, a_operand, b));
  }
  out_.close();
}

}  // namespace tegula::codegen
